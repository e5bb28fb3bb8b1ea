// Sums of rows' numbers by document.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace snug::dist {
class Group;
}

namespace snug::ops {

// Rows [begin, end) of a document.
struct DocumentRows {
  int64_t document = 0, begin = 0, end = 0;
};

// values (N) float32 -> (S) float32; rows that belong to no document are left out. With a group
// each rank has some of the rows and all get the sums of all; the gradient of a row is that of its
// document's sum, which must be the same on all ranks.
at::Tensor document_sums(const at::Tensor& values, const std::vector<DocumentRows>& rows,
                         int64_t num_documents, dist::Group* group = nullptr);

// numbers (S) -> (num_rows): each document's number on its rows, 0 elsewhere. No gradient.
at::Tensor document_rows(const at::Tensor& numbers, const std::vector<DocumentRows>& rows,
                         int64_t num_rows);

}  // namespace snug::ops
