// SPDX-License-Identifier: Apache-2.0
#include "base/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace snug {
namespace {

using testing::ElementsAre;

std::vector<std::string>& ranges() {
  static std::vector<std::string> seen;
  return seen;
}

TEST(Trace, ProfilersRangesNestWhetherOrNotSpansAreRecorded) {
  trace::set_ranges({.begin = [](const char* name) { ranges().push_back(name); },
                     .end = [] { ranges().push_back("end"); }});
  {
    const trace::Timed step(trace::Track::Computation, "step");
    const trace::Timed forward(trace::Track::Computation, "forward", "layers.3");
  }
  trace::set_ranges({});
  { const trace::Timed after(trace::Track::Computation, "update"); }
  EXPECT_THAT(ranges(), ElementsAre("step", "forward layers.3", "end", "end"));
}

TEST(Trace, RecordsTheSpansBetweenStartAndStop) {
  { const trace::Timed before(trace::Track::Computation, "data"); }
  trace::start();
  { const trace::Timed during(trace::Track::Disk, "read", "layers.0"); }
  const std::vector<trace::Span> spans = trace::stop();
  { const trace::Timed after(trace::Track::Computation, "data"); }
  ASSERT_EQ(spans.size(), 1U);
  EXPECT_EQ(spans[0].what, "read");
  EXPECT_EQ(spans[0].unit, "layers.0");
  EXPECT_LE(spans[0].begin, spans[0].end);
  EXPECT_TRUE(trace::stop().empty());
}

}  // namespace
}  // namespace snug
