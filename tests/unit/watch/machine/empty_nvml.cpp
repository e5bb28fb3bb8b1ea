// A library without any of the calls.
// SPDX-License-Identifier: Apache-2.0
extern "C" int unrelated() { return 0; }
