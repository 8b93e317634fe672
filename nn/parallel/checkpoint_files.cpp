#include "nn/parallel/checkpoint_files.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "core/types/errors.h"
#include "nn/serialize/atomic_file.h"

namespace mytorch::nn::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = kModelPrefix;

bool exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

bool is_folder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

std::string ready_folder(const std::string& folder) { return folder + ".ready"; }
std::string old_folder(const std::string& folder) { return folder + ".old"; }

// The folder of the checkpoint.
std::string existing(const std::string& folder) {
  if (exists(folder)) return folder;
  for (const std::string& other : {ready_folder(folder), old_folder(folder)}) {
    if (is_folder(other)) return other;
  }
  return folder;
}

bool has_state(const std::string& path) { return exists(path + "/" + kStateIndex); }
bool has_model(const std::string& path) {
  return !is_folder(path) || exists(path + "/model.safetensors") ||
         exists(path + "/" + kModelIndex);
}

// Puts a complete FOLDER.ready in its place, or what was there back.
void restore(const std::string& folder) {
  const std::string there = existing(folder);
  if (there != folder) fs::rename(there, folder);
}

}  // namespace

std::string fresh_folder(const std::string& folder) { return folder + ".new"; }

void begin_folder(const std::string& folder) {
  restore(folder);
  for (const std::string& rest : {fresh_folder(folder), ready_folder(folder), old_folder(folder)}) {
    fs::remove_all(rest);
  }
  fs::create_directories(fresh_folder(folder));
}

bool has_files(const std::string& folder, const std::set<std::string>& names) {
  return std::all_of(names.begin(), names.end(),
                     [&](const std::string& name) { return exists(folder + "/" + name); });
}

void commit_folder(const std::string& folder) {
  // Of several ranks, one renames it.
  std::error_code error;
  fs::rename(fresh_folder(folder), ready_folder(folder), error);
  if (error == std::errc::no_such_file_or_directory) return;
  if (error) throw fs::filesystem_error("rename", fresh_folder(folder), error);
  const std::string parent = directory_of(folder);
  sync_directory(parent);
  if (is_folder(folder)) fs::rename(folder, old_folder(folder));
  fs::rename(ready_folder(folder), folder);
  sync_directory(parent);
  // The new one is in its place: what remains of the old one is removed by the next save.
  fs::remove_all(old_folder(folder), error);
}

void discard_folder(const std::string& folder) {
  std::error_code ignored;
  fs::remove_all(fresh_folder(folder), ignored);
  fs::remove_all(ready_folder(folder), ignored);
  if (!exists(folder)) fs::rename(old_folder(folder), folder, ignored);
}

CheckpointFiles::CheckpointFiles(const std::string& path) : path_(existing(path)) {
  if (!exists(path_)) {
    fail(ErrorCode::kIo, "[checkpoint] ", path, " is no checkpoint: there is no such folder");
  }
  if (has_state(path_)) state_.emplace(path_ + "/" + kStateIndex, "checkpoint");
  if (has_model(path_)) model_.emplace(path_, "checkpoint");
  if (!model_.has_value() && !state_.has_value()) {
    fail(ErrorCode::kIo, "[checkpoint] ", path_, " is no checkpoint: it has neither ", kModelIndex,
         " nor ", kStateIndex, " nor model.safetensors");
  }
}

bool CheckpointFiles::contains(const std::string& name) const {
  return name.starts_with(kPrefix)
             ? model_.has_value() && model_->contains(name.substr(kPrefix.size()))
             : state_.has_value() && state_->contains(name);
}

std::vector<std::string> CheckpointFiles::names() const {
  std::vector<std::string> names;
  if (model_.has_value()) {
    for (const std::string& name : model_->names()) names.push_back(kModelPrefix + name);
  }
  if (state_.has_value()) {
    for (const std::string& name : state_->names()) names.push_back(name);
  }
  return names;
}

std::pair<const SafetensorsFiles*, std::string> CheckpointFiles::find(
    const std::string& name) const {
  if (!contains(name)) {
    fail(ErrorCode::kValue, "[checkpoint] ", path_, " has no '", name, "'");
  }
  if (name.starts_with(kPrefix)) return {&*model_, name.substr(kPrefix.size())};
  return {&*state_, name};
}

bool has_checkpoint(const std::string& folder) {
  const std::string path = existing(folder);
  return exists(path) && (has_state(path) || has_model(path));
}

}  // namespace mytorch::nn::checkpoint
