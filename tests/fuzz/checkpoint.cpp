// SPDX-License-Identifier: Apache-2.0
#include <fstream>

#include "files/checkpoint/index.h"
#include "files/checkpoint/stored_tensors.h"
#include "files/checkpoint/training_checkpoint.h"
#include "fuzz/fuzz.h"
#include "support/temp_folder.h"

namespace {
namespace checkpoint = snug::checkpoint;

// With files of weights that hold none, so that only the state is in question.
void write_empty_weights(const std::filesystem::path& folder) {
  for (const checkpoint::Contents contents :
       {checkpoint::Contents::Model, checkpoint::Contents::Optimizer})
    std::ofstream(folder / checkpoint::file_name(contents, 0, 1))
        << std::string_view("\2\0\0\0\0\0\0\0{}", 10);
}

}  // namespace

// A changed state.json, and a changed index.json of a checkpoint that several ranks wrote.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  snug::fuzz::with_file(data, size, checkpoint::kStateName, [](const std::filesystem::path& path) {
    static const snug::test::TempFolder folder;
    static const bool written = (write_empty_weights(folder.path()), true);
    if (written) std::filesystem::remove(folder / checkpoint::kStateName);
    std::filesystem::create_symlink(path, folder / checkpoint::kStateName);
    checkpoint::load_state(folder.path());
  });
  snug::fuzz::with_file(data, size, checkpoint::kIndexName, [](const std::filesystem::path& path) {
    checkpoint::fault_of(path.parent_path());
    if (const auto index = checkpoint::read_index(path.parent_path()))
      for (const checkpoint::PieceFile& file : index->files)
        checkpoint::parse_pieces(checkpoint::pieces_text(file.pieces));
  });
  return 0;
}

bool snug::fuzz::change_structure(Bytes& bytes, Random& random) {
  return change_json(bytes, random);
}
