// SPDX-License-Identifier: Apache-2.0
#include "report/live_line.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "report/text_width.h"

namespace snug::report {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

// A FILE* whose bytes can be looked at.
class Output {
 public:
  Output() : file_(::open_memstream(&data_, &size_)) {}
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  ~Output() {
    std::fclose(file_);
    std::free(data_);
  }
  std::FILE* file() { return file_; }
  std::string take() {
    std::fflush(file_);
    std::string all(data_, size_);
    std::string fresh = all.substr(taken_);
    taken_ = all.size();
    return fresh;
  }

 private:
  char* data_ = nullptr;
  size_t size_ = 0;
  size_t taken_ = 0;
  std::FILE* file_;
};

StepStatus at(int64_t step, int64_t total = 500) {
  StepStatus status;
  status.iter = 2 * step;
  status.step = step;
  status.total_steps = total;
  status.loss = 1.2344;
  status.iter_seconds = 0.0812;
  status.tokens_per_second = 1312.4;
  status.share_of_peak = 0.412;
  status.memory_bytes = 19 * kGiB / 10;
  status.budget_bytes = 2 * kGiB;
  status.seconds_left = 151;
  return status;
}

struct Fixture {
  double now = 0;
  int width = 120;
  LiveLineOptions options(bool colours = false) {
    return {.clock = [this] { return now; },
            .terminal_width = [this] { return width; },
            .colours = colours};
  }
};

TEST(LiveLine, LitGptLine) {
  StepStatus status = at(1);
  status.iter = 8;
  EXPECT_EQ(litgpt_line(status),
            "Epoch 1 | iter 8 step 1 | loss train: 1.234, val: n/a | iter time: 81.20 ms (step)");
  status.is_step = false;
  status.val_loss = 2;
  EXPECT_EQ(litgpt_line(status),
            "Epoch 1 | iter 8 step 1 | loss train: 1.234, val: 2.000 | iter time: 81.20 ms");
}

TEST(LiveLine, TellsEverythingWhereThereIsRoom) {
  const std::string line = render_live_line(at(250), 120, Colours::Off);
  EXPECT_EQ(line,
            "step 250/500  ━━━━━━━━━━━━──────────── 50%  loss 1.234  1,312 tok/s  MFU 41%"
            "  memory 1.90/2.00 GiB  2:31 left");
}

TEST(LiveLine, TellsOfRetriesIfThereAreAny) {
  StepStatus status = at(250);
  const auto line = [&] { return render_live_line(status, 140, Colours::Off); };
  EXPECT_EQ(line().find("retr"), std::string::npos);
  status.num_alloc_retries = 1;
  EXPECT_NE(line().find("1.90/2.00 GiB  1 allocator retry"), std::string::npos) << line();
  status.num_alloc_retries = 1200;
  EXPECT_NE(line().find("1,200 allocator retries"), std::string::npos) << line();
}

TEST(LiveLine, LeavesOutWhatMattersLeast) {
  StepStatus status = at(250);
  status.val_loss = 1.5;
  EXPECT_EQ(render_live_line(status, 72, Colours::Off),
            "step 250/500  loss 1.234  1,312 tok/s  memory 1.90/2.00 GiB  2:31 left");
  EXPECT_EQ(render_live_line(status, 25, Colours::Off), "step 250/500  loss 1.234");
  EXPECT_EQ(render_live_line(status, 14, Colours::Off), "step 250/500");
  EXPECT_EQ(render_live_line(status, 5, Colours::Off), "step ");
}

TEST(LiveLine, FitsEveryWidth) {
  StepStatus status = at(250);
  status.val_loss = 1.5;
  for (const Colours colours : {Colours::Off, Colours::On})
    for (int width = 0; width < 200; ++width)
      EXPECT_LE(display_width(render_live_line(status, width, colours)),
                static_cast<size_t>(width));
}

TEST(LiveLine, SurvivesAbsurdFigures) {
  StepStatus status = at(600);  // past the end
  status.loss = NAN;
  status.tokens_per_second = INFINITY;
  status.seconds_left = -5;
  EXPECT_EQ(render_live_line(status, 70, Colours::Off).substr(0, 12), "step 600/500");
  status.tokens_per_second = 1e300;
  status.seconds_left = 1e300;
  status.loss = 1e300;
  EXPECT_LE(display_width(render_live_line(status, 100, Colours::Off)), 100U);
}

TEST(LiveLine, NoTotalNoBar) {
  StepStatus status = at(7, 0);
  status.seconds_left.reset();
  EXPECT_EQ(render_live_line(status, 120, Colours::Off),
            "step 7  loss 1.234  1,312 tok/s  MFU 41%  memory 1.90/2.00 GiB");
}

TEST(LiveLine, RewritesOneLineInATerminal) {
  Fixture fixture;
  Output out;
  {
    LiveLine line(out.file(), true, fixture.options());
    line.update(at(1));
    const std::string first = out.take();
    EXPECT_EQ(first.find('\n'), std::string::npos);
    EXPECT_EQ(first.substr(0, 6), "\r\x1b[?7l");                  // no wrapping while drawing
    EXPECT_EQ(first.substr(first.size() - 8), "\x1b[K\x1b[?7h");  // and on again
    fixture.now += 0.05;
    line.update(at(2));
    EXPECT_EQ(out.take(), "") << "redrawn within a tenth of a second";
    fixture.now += 0.06;
    fixture.width = 18;  // the window was made narrower
    line.update(at(3));
    EXPECT_EQ(out.take(), "\r\x1b[?7lstep 3/500\x1b[K\x1b[?7h");
    line.print("answer");
    EXPECT_EQ(out.take(), "\r\x1b[Kanswer\n\r\x1b[?7lstep 3/500\x1b[K\x1b[?7h");
    fixture.now += 0.01;
    line.update(at(4));
    EXPECT_EQ(out.take(), "");
  }
  EXPECT_EQ(out.take(), "\r\x1b[?7lstep 4/500\x1b[K\x1b[?7h\n") << "the last state stays on screen";
}

TEST(LiveLine, ShowsANewValidationLossBelowItsReport) {
  Fixture fixture;
  fixture.width = 200;
  Output out;
  LiveLine line(out.file(), true, fixture.options());
  line.validated(9.0);  // before there is a line
  line.update(at(1));
  EXPECT_EQ(out.take().find("val 9.000"), std::string::npos);
  line.validated(3.5);
  line.print("Validation at step 1");
  EXPECT_NE(out.take().find("val 3.500"), std::string::npos);
}

TEST(LiveLine, ColoursOnlyWhereWanted) {
  EXPECT_EQ(render_live_line(at(1), 120, Colours::Off).find('\x1b'), std::string::npos);
  EXPECT_NE(render_live_line(at(1), 120, Colours::On).find("\x1b[33mmemory 1.90/2.00 GiB"),
            std::string::npos)
      << "near the budget the memory turns yellow";
  Fixture fixture;
  Output out;
  LiveLineOptions options = fixture.options();
  options.colours.reset();
  ::setenv("NO_COLOR", "1", 1);
  LiveLine refused(out.file(), true, options);
  refused.update(at(1));
  EXPECT_EQ(out.take().find("\x1b[3"), std::string::npos);
  ::unsetenv("NO_COLOR");
  LiveLine coloured(out.file(), true, options);
  coloured.update(at(1));
  EXPECT_NE(out.take().find("\x1b[3"), std::string::npos);
}

TEST(LiveLine, PlainLinesInAFile) {
  Fixture fixture;
  Output out;
  LiveLine line(out.file(), false, fixture.options());
  line.update(at(1));
  EXPECT_EQ(out.take(),
            "Epoch 1 | iter 2 step 1 | loss train: 1.234, val: n/a | iter time: 81.20 ms (step)"
            " | 1,312 tok/s | 1.90/2.00 GiB | 2:31 left\n");
  line.print("two\nlines\n");
  EXPECT_EQ(out.take(), "two\nlines\n");
  line.finish();
  EXPECT_EQ(out.take(), "") << "the last line was printed already";
}

TEST(LiveLine, PlainLinesOfALongRunAreRare) {
  Fixture fixture;
  Output out;
  LiveLine line(out.file(), false, fixture.options());
  const auto count = [&] {
    const std::string text = out.take();
    return std::count(text.begin(), text.end(), '\n');
  };
  for (int64_t step = 1; step <= 1000; ++step) {
    fixture.now += 0.1;
    line.update(at(step, 1000));
  }
  EXPECT_EQ(count(), 20 + 9);  // the first 20, then one each ten of the 98 seconds left
  line.finish();
  EXPECT_EQ(count(), 1);
  LiveLine few(out.file(), false, fixture.options());
  for (int64_t step = 1; step <= 200; ++step) few.update(at(step, 200));
  EXPECT_EQ(count(), 200);
}

TEST(LiveLine, PlainLinesAreThoseOfEveryIntervalThStep) {
  Fixture fixture;
  Output out;
  LiveLineOptions options = fixture.options();
  options.interval = 3;
  LiveLine line(out.file(), false, options);
  for (int64_t step = 1; step <= 8; ++step) line.update(at(step, 8));
  const std::string text = out.take();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2) << text;
  EXPECT_NE(text.find("step 3 "), text.npos) << text;
  EXPECT_NE(text.find("step 6 "), text.npos) << text;
  line.finish();
  EXPECT_NE(out.take().find("step 8 "), std::string::npos) << "the last step is shown";
}

TEST(LiveLine, ACopyHasPlainLinesAlsoInATerminal) {
  Fixture fixture;
  fixture.width = 20;
  Output out;
  std::string copy, plain;
  const auto with_copy = [&](std::string& text) {
    LiveLineOptions options = fixture.options(true);
    options.copy = [&text](std::string_view more) { text += std::string(more) + "\n"; };
    return options;
  };
  LiveLine terminal(out.file(), true, with_copy(copy)), file(out.file(), false, with_copy(plain));
  for (LiveLine* line : {&terminal, &file}) {
    for (int64_t step = 1; step <= 30; ++step) line->update(at(step));
    line->print("a table");
    line->finish();
  }
  EXPECT_EQ(copy, plain);
  EXPECT_EQ(copy.find('\x1b'), std::string::npos);
  EXPECT_EQ(std::count(copy.begin(), copy.end(), '\n'), 20 + 1 + 1) << "the last step at the end";
  EXPECT_TRUE(copy.starts_with("Epoch 1 | iter 2 step 1 | loss train: 1.234")) << copy;
}

TEST(LiveLine, WorksOutTheTimeLeft) {
  Fixture fixture;
  Output out;
  LiveLine line(out.file(), false, fixture.options());
  StepStatus status = at(10, 110);
  status.seconds_left.reset();
  line.update(status);
  EXPECT_EQ(out.take().find("left"), std::string::npos) << "one step tells nothing about the rate";
  fixture.now += 20;
  status.step = 20;
  line.update(status);
  EXPECT_NE(out.take().find("3:00 left"), std::string::npos);  // 2 s a step, 90 to go
}

TEST(LiveLine, AsksTheTerminalForItsWidth) {
  int parent = -1, child = -1;
  winsize size{};
  size.ws_col = 30;
  size.ws_row = 5;
  ASSERT_EQ(::openpty(&parent, &child, nullptr, nullptr, &size), 0);
  std::FILE* terminal = ::fdopen(child, "w");
  ASSERT_NE(terminal, nullptr);
  {
    LiveLine line(terminal, true, {.clock = {}, .terminal_width = {}, .colours = false});
    line.update(at(1));
  }
  std::string seen;
  char buffer[512];
  while (!seen.ends_with('\n')) {
    const ssize_t got = ::read(parent, buffer, sizeof(buffer));
    ASSERT_GT(got, 0);
    seen.append(buffer, got);
  }
  EXPECT_EQ(seen, "\r\x1b[?7lstep 1/500  loss 1.234\x1b[K\x1b[?7h\r\n");
  std::fclose(terminal);
  ::close(parent);
}

TEST(LiveLine, WarningsStandAboveTheLine) {
  int parent = -1, child = -1;
  winsize size{};
  size.ws_col = 30;
  size.ws_row = 5;
  ASSERT_EQ(::openpty(&parent, &child, nullptr, nullptr, &size), 0);
  std::FILE* terminal = ::fdopen(child, "w");
  ASSERT_NE(terminal, nullptr);
  std::string before;
  const LogSinkGuard outer([&](const std::string& text) { before += text; });
  {
    LiveLine line(terminal, true, {.clock = {}, .terminal_width = {}, .colours = false});
    warn("early");
    line.update(at(1));
    warn("between {} and {}", 1, 2);
    line.update(at(2));
    line.finish();
    warn("late");
  }
  EXPECT_EQ(before, "warning: early\nwarning: late\n");
  std::string seen;
  char buffer[512];
  while (std::count(seen.begin(), seen.end(), '\n') < 2) {
    const ssize_t got = ::read(parent, buffer, sizeof(buffer));
    ASSERT_GT(got, 0);
    seen.append(buffer, got);
  }
  const std::string first = "\r\x1b[?7lstep 1/500  loss 1.234\x1b[K\x1b[?7h";
  const std::string second = "\r\x1b[?7lstep 2/500  loss 1.234\x1b[K\x1b[?7h";
  EXPECT_EQ(seen, first + "\r\x1b[Kwarning: between 1 and 2\r\n" + first + second + "\r\n");
  std::fclose(terminal);
  ::close(parent);
}

TEST(ClockText, GrowsWithTheTime) {
  EXPECT_EQ(clock_text(0), "0:00");
  EXPECT_EQ(clock_text(151), "2:31");
  EXPECT_EQ(clock_text(3751), "1:02:31");
  EXPECT_EQ(clock_text(183840), "2d 03:04");
  EXPECT_EQ(clock_text(-5), "0:00");
  EXPECT_EQ(clock_text(NAN), "0:00");
}

}  // namespace
}  // namespace snug::report
