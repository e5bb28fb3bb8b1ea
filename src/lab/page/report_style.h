// What the report's page looks like and what its buttons do, as text to be put into it. The script
// is optional: without it the page is whole, only not sorted, copied or switched.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace snug::lab {

std::string_view page_style();
std::string_view page_script();

// SHA-256 of page_script() in base64, as the page's content security policy names it: no other
// script runs, whatever a title or a log holds. tests/system/lab_page says the new one after a
// change.
std::string_view page_script_hash();

}  // namespace snug::lab
