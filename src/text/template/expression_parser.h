// Expressions of a template, by recursive descent with Jinja's precedences, loosest first:
// conditional, or, and, not, comparison, + -, ~, * / // %, **, unary, then . [] () and the filters
// and tests.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "text/template/ast.h"
#include "text/template/token_stream.h"

namespace snug::tokenizer::jinja {

// "a, b, c" gives a list, "a" only the expression.
ExpressionPtr parse_tuple(TokenStream& stream);
ExpressionPtr parse_expression(TokenStream& stream);
// Without "… if … else …", which a for loop reads itself.
ExpressionPtr parse_or(TokenStream& stream);
// parse_filter: the filter after a '|', applied to `value`; parse_filters: all filters after a
// value.
ExpressionPtr parse_filter(TokenStream& stream, ExpressionPtr value);
ExpressionPtr parse_filters(TokenStream& stream, ExpressionPtr value);

}  // namespace snug::tokenizer::jinja
