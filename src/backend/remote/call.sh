# SPDX-License-Identifier: Apache-2.0
# Calls main of main.sh in the working directory: call.sh ARGUMENTS RESULT. What main writes to descriptor 9 is its result.
CORDON_ARGUMENTS=$(cat "$1") CORDON_RESULT_FD=9
export CORDON_ARGUMENTS CORDON_RESULT_FD
exec 9>"$2"
. ./main.sh
main "$CORDON_ARGUMENTS"
