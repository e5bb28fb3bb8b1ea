// SPDX-License-Identifier: Apache-2.0
#include "base/terminal.h"

#include <gtest/gtest.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <optional>
#include <string>

#include "base/program.h"

namespace snug {
namespace {

// The environment as a test wants it, and then again as it was. Empty: not set.
class Environment {
 public:
  explicit Environment(const std::map<std::string, std::string>& wanted) {
    for (const char* name : {"TERM", "NO_COLOR", "LC_ALL", "LC_CTYPE", "LANG"}) {
      const char* value = std::getenv(name);
      before_[name] = value == nullptr ? std::optional<std::string>() : value;
      const auto found = wanted.find(name);
      set(name, found == wanted.end() ? std::nullopt : std::optional(found->second));
    }
  }
  ~Environment() {
    for (const auto& [name, value] : before_) set(name, value);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  static void set(const std::string& name, const std::optional<std::string>& value) {
    if (value)
      ::setenv(name.c_str(), value->c_str(), 1);
    else
      ::unsetenv(name.c_str());
  }
  std::map<std::string, std::optional<std::string>> before_;
};

class PseudoTerminal {
 public:
  PseudoTerminal(int columns, int rows) {
    winsize size{};
    size.ws_col = static_cast<unsigned short>(columns);
    size.ws_row = static_cast<unsigned short>(rows);
    EXPECT_EQ(::openpty(&parent_, &child_, nullptr, nullptr, &size), 0);
  }
  ~PseudoTerminal() {
    ::close(child_);
    ::close(parent_);
  }
  PseudoTerminal(const PseudoTerminal&) = delete;
  PseudoTerminal& operator=(const PseudoTerminal&) = delete;
  int descriptor() const { return child_; }

 private:
  int parent_ = -1, child_ = -1;
};

TEST(Terminal, ItsSize) {
  const PseudoTerminal terminal(132, 43);
  EXPECT_EQ(terminal_size(terminal.descriptor()).columns, 132);
  EXPECT_EQ(terminal_size(terminal.descriptor()).rows, 43);
  const PseudoTerminal says_nothing(0, 0);
  EXPECT_EQ(terminal_size(says_nothing.descriptor()).columns, 80);
  EXPECT_EQ(terminal_size(-1).rows, 24);
}

TEST(Terminal, ColoursWhereTheyAreUnderstoodAndWanted) {
  const PseudoTerminal terminal(80, 24);
  const auto colours = [&](const std::map<std::string, std::string>& variables) {
    const Environment environment(variables);
    return style_of(terminal.descriptor()).colours;
  };
  EXPECT_TRUE(colours({{"TERM", "xterm"}}));
  EXPECT_TRUE(colours({{"TERM", "xterm"}, {"NO_COLOR", ""}})) << "empty is not set: no-color.org";
  EXPECT_FALSE(colours({{"TERM", "xterm"}, {"NO_COLOR", "1"}}));
  EXPECT_FALSE(colours({{"TERM", "dumb"}}));
  EXPECT_FALSE(colours({}));
  const Environment environment(std::map<std::string, std::string>{{"TERM", "xterm"}});
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  EXPECT_FALSE(style_of(pipe[1]).colours);
  EXPECT_FALSE(can_draw(pipe[1]));
  ::close(pipe[0]);
  ::close(pipe[1]);
}

TEST(Terminal, LettersByTheFirstVariableThatIsSet) {
  const auto unicode = [](const std::map<std::string, std::string>& variables) {
    const Environment environment(variables);
    return style_of(-1).unicode;
  };
  EXPECT_TRUE(unicode({{"LANG", "de_DE.UTF-8"}}));
  EXPECT_TRUE(unicode({{"LANG", "C.utf8"}}));
  EXPECT_FALSE(unicode({{"LANG", "de_DE.ISO-8859-1"}}));
  EXPECT_FALSE(unicode({{"LC_ALL", "C"}, {"LANG", "de_DE.UTF-8"}}));
  EXPECT_TRUE(unicode({{"LC_ALL", ""}, {"LC_CTYPE", "C.UTF-8"}, {"LANG", "C"}}));
  EXPECT_FALSE(unicode({}));
}

TEST(Host, HasAName) { EXPECT_FALSE(host_name().empty()); }

}  // namespace
}  // namespace snug
