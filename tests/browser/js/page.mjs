// SPDX-License-Identifier: Apache-2.0
/* All cases, one after the other; each prints {"case", "error", "ms"}, and "figures" where it measures some. */
import { browser, problems } from './browser.mjs';
import { cases as page } from './cases_page.mjs';
import { cases as operator } from './cases_operator.mjs';
import { cases as trouble } from './cases_trouble.mjs';
import { cases as looks } from './cases_looks.mjs';

const only = new RegExp(process.env.CORDON_CASES ?? ''); // the names of those that are wanted

for (const [name, run] of Object.entries({ ...page, ...trouble, ...operator, ...looks })) {
  if (!only.test(name)) continue;
  problems.length = 0;
  let error = null, figures;
  const began = Date.now();
  try {
    figures = await run();
    if (problems.length) error = problems.join('; ');
  } catch (caught) {
    error = caught.message.slice(0, 600);
  }
  console.log(JSON.stringify({ case: name, error, ms: Date.now() - began, figures }));
  for (const context of browser.contexts()) await context.close();
}
await browser.close();
