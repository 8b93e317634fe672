// The files of a checkpoint's folder.
//
// Tensors "model.NAME" are in model-00001-of-00004.safetensors and so on as "NAME", and
// model.safetensors.index.json says which file has which. All others are in such files that begin
// with "state", by their own names.
//
// A new checkpoint is written into FOLDER.new. When it is complete and on the disk, it becomes
// FOLDER.ready, FOLDER becomes FOLDER.old, and FOLDER.ready becomes FOLDER. If this is cut off,
// there is FOLDER, or a complete FOLDER.ready, or FOLDER.old.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "mytorch/nn/safetensors_files.h"

namespace mytorch::nn::checkpoint {

inline constexpr const char* kModelPrefix = "model.";
inline constexpr const char* kModelIndex = "model.safetensors.index.json";
inline constexpr const char* kStateIndex = "state.safetensors.index.json";

// ---- writing ----

std::string fresh_folder(const std::string& folder);  // FOLDER.new
// Completes or undoes a replacement that was cut off, and makes an empty FOLDER.new.
void begin_folder(const std::string& folder);
// Whether a folder has files of all these names.
bool has_files(const std::string& folder, const std::set<std::string>& names);
// Puts FOLDER.new in its place. If several ranks call it, one of them does.
void commit_folder(const std::string& folder);
// Removes what was not put in its place.
void discard_folder(const std::string& folder);

// ---- reading ----

bool has_checkpoint(const std::string& folder);

// Opens a checkpoint, also if its replacement was cut off; or a folder, an index or a file of
// Hugging Face's format, whose tensors are those of a model.
class CheckpointFiles {
 public:
  explicit CheckpointFiles(const std::string& path);
  const std::string& path() const { return path_; }
  bool contains(const std::string& name) const;
  std::vector<std::string> names() const;
  // Returns the files that have a tensor, and its name in them. Throws Error(kValue) if there is no
  // such tensor.
  std::pair<const SafetensorsFiles*, std::string> find(const std::string& name) const;

 private:
  std::string path_;
  std::optional<SafetensorsFiles> model_, state_;
};

}  // namespace mytorch::nn::checkpoint
