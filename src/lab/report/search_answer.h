// What a search has come to, by the tries that there are of it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lab/report/row_view.h"

namespace snug::lab {

// Tries that were done, in the order of their values.
std::vector<const RowView*> tries_of(const Group& search, const std::vector<RowView>& views);

// Whether the edge is known: a value that fits and the next one that does not, or an end of what
// may be tried.
bool is_answered(const Group& search, const std::vector<const RowView*>& tries);

// Where it is not known, why: "no answer, since 4 ended in error"; else empty.
std::string why_unanswered(const Group& search, const std::vector<const RowView*>& tries);

}  // namespace snug::lab
