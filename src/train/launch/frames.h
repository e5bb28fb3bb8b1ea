// What rank 0 says on its standard output and error, as one stream through mpirun: mpirun's own
// words come on its standard error, so that the two cannot be mixed up.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace snug::launch {

enum class Channel : char { Out = '1', Error = '2' };

std::string framed(Channel channel, std::string_view bytes);

// Takes the stream in pieces of any size. What stands between frames (a login script's greeting on
// another machine) is dropped.
class FrameReader {
 public:
  using Sink = std::function<void(Channel, std::string_view)>;
  void take(std::string_view bytes, const Sink& sink);

 private:
  std::string waiting_;
};

}  // namespace snug::launch
