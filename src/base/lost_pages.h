// What becomes of a file that is mapped while somebody cuts it short, or whose disk fails.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace snug {

// From now on a read of mapped bytes that are no longer there ends the program with exit code 2 and
// a message that names the file, where it would end by a signal (SIGBUS) without a word.
void tell_of_lost_pages();

}  // namespace snug
