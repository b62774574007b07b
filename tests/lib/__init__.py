# SPDX-License-Identifier: Apache-2.0
"""Helpers of the black-box tests: a daemon to talk to, the command line, and what is left on the host afterwards."""
