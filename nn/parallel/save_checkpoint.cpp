// Writing of sharded checkpoints, at once or in the background.
#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/types/errors.h"
#include "mytorch/grad_mode.h"
#include "mytorch/nn/parallel/sharded_checkpoint.h"
#include "nn/parallel/checkpoint_files.h"
#include "nn/parallel/checkpoint_plan.h"

namespace mytorch::nn {

namespace checkpoint {
// The files of one kind of tensors: those of models, or all others.
struct Files {
  std::string index;                         // its name
  std::map<std::string, std::string> files;  // of each tensor
  int64_t bytes = 0;
};
}  // namespace checkpoint

namespace {

using checkpoint::agree;
using checkpoint::error_of;
using checkpoint::Files;
using checkpoint::PlannedTensor;
using distributed::Group;

// Removes slashes at the end, to which nothing can be appended.
std::string without_slash(std::string folder) {
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  return folder;
}

// Whether a tensor is one of a model, which the model's files have by its own name.
bool is_model(const std::string& name) {
  return name.starts_with(checkpoint::kModelPrefix) && name != checkpoint::kModelPrefix;
}

std::string name_in_file(const std::string& name) {
  return is_model(name) ? name.substr(std::string(checkpoint::kModelPrefix).size()) : name;
}

// Names the files. The ranks that write a kind number theirs.
Files name_files(const std::vector<PlannedTensor>& plan, bool model) {
  Files files{model ? checkpoint::kModelIndex : checkpoint::kStateIndex, {}};
  std::map<int, int> numbers;  // by rank
  for (const PlannedTensor& tensor : plan) {
    if (is_model(tensor.name) == model) numbers[tensor.writer] = 0;
  }
  int number = 0;
  for (auto& [rank, given] : numbers) given = ++number;
  for (const PlannedTensor& tensor : plan) {
    if (is_model(tensor.name) != model) continue;
    files.files[name_in_file(tensor.name)] =
        absl::StrFormat("%s-%05d-of-%05d.safetensors", model ? "model" : "state",
                        numbers.at(tensor.writer), number);
    files.bytes += tensor.bytes();
  }
  return files;
}

}  // namespace

// What a rank has to write, and how far it is.
struct CheckpointSave::State {
  State(std::string given, const std::vector<TensorPart>& parts, Group ranks, bool copies)
      : folder(std::move(given)), group(std::move(ranks)) {
    const std::vector<PlannedTensor> plan = checkpoint::plan_tensors(parts, group, folder);
    agree(group, error_of([&] {
            if (group.rank() == 0) checkpoint::begin_folder(folder);
          }),
          folder);
    kinds = {name_files(plan, true), name_files(plan, false)};
    for (auto& [number, tensor] : checkpoint::gather_tensors(plan, parts, group, copies)) {
      const std::string& name = plan[number].name;
      const std::string key = name_in_file(name);
      tensors[kinds[is_model(name) ? 0 : 1].files.at(key)][key] = std::move(tensor);
    }
  }
  ~State() {
    if (thread.joinable()) thread.join();
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // A checkpoint of nothing has an index, too.
  bool has_index(const Files& kind) const {
    return !kind.files.empty() || (&kind == &kinds[1] && kinds[0].files.empty());
  }

  // Writes this rank's files.
  void write() {
    error = error_of([&] {
      const std::string fresh = checkpoint::fresh_folder(folder) + "/";
      for (const auto& [file, content] : tensors) {
        save_safetensors(fresh + file, content, {{"format", "pt"}});  // transformers requires it
      }
      if (group.rank() != 0) return;
      for (const Files& kind : kinds) {
        if (has_index(kind)) save_safetensors_index(fresh + kind.index, kind.files, kind.bytes);
      }
    });
    tensors.clear();
  }

  // Whether a folder has the files of all ranks, which appear under their names when they are
  // complete.
  bool is_complete(const std::string& where) const {
    std::set<std::string> names;
    for (const Files& kind : kinds) {
      if (has_index(kind)) names.insert(kind.index);
      for (const auto& [name, file] : kind.files) names.insert(file);
    }
    return checkpoint::has_files(where, names);
  }
  // Puts the checkpoint in its place, unless another rank has.
  void commit() const {
    checkpoint::commit_folder(folder);
    if (is_complete(folder)) return;
    fail(ErrorCode::kIo, "[checkpoint] ", checkpoint::fresh_folder(folder),
         " was removed while it was written");
  }

  void start() {
    try {
      thread = std::thread([this] {
        write();
        if (error.empty() && is_complete(checkpoint::fresh_folder(folder))) {
          error = error_of([&] { checkpoint::commit_folder(folder); });
        }
        done.store(true, std::memory_order_release);
      });
    } catch (const std::system_error& e) {  // the other ranks learn of it when they agree
      error = std::string("cannot start a thread: ") + e.what();
      done = true;
    }
  }

  // Waits for all ranks; throws on all of them if one failed.
  void finish() {
    if (thread.joinable()) thread.join();
    done = true;
    finished = true;
    failure = error_of([&] { agree(group, error, folder); });
    // Ranks of other machines may have seen each other's files too late.
    if (failure.empty()) {
      failure = error_of([&] {
        agree(group, error_of([&] {
                if (group.rank() == 0) commit();
              }),
              folder);
      });
    }
    if (!failure.empty() && group.rank() == 0) checkpoint::discard_folder(folder);
    // Nothing is left when a rank returns.
    if (!failure.empty()) error_of([&] { group.barrier(); });
    check();
  }
  void check() const {
    if (!failure.empty()) throw Error(ErrorCode::kIo, failure);
  }

  const std::string folder;
  const Group group;
  std::vector<Files> kinds;                  // of models, and all others
  std::map<std::string, TensorMap> tensors;  // this rank's, by file
  std::thread thread;
  std::string error;  // of this rank
  std::atomic<bool> done{false};
  bool finished = false;
  std::string failure;  // of any rank
};

namespace {

// The checkpoints that are being written: one of a group, on each of its ranks.
class SavesUnderWay {
 public:
  using State = CheckpointSave::State;

  static SavesUnderWay& all() {
    static SavesUnderWay saves;  // waits for the threads when the program ends
    return saves;
  }
  void add(const std::shared_ptr<State>& state) {
    const std::lock_guard<std::mutex> lock(mutex_);
    states_[state->group.state().get()] = state;
  }
  // Returns that of a group, which is no longer pending; or null.
  std::shared_ptr<State> take(const Group& group) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = states_.find(group.state().get());
    if (found == states_.end()) return nullptr;
    std::shared_ptr<State> state = std::move(found->second);
    states_.erase(found);
    return state;
  }

 private:
  std::mutex mutex_;
  std::map<const distributed::GroupState*, std::shared_ptr<State>> states_;
};

std::shared_ptr<CheckpointSave::State> prepare(const std::string& folder,
                                               const std::vector<TensorPart>& parts,
                                               const Group& given, bool copies) {
  const NoGradGuard no_grad;
  const Group group = given.defined() ? given : distributed::world();
  if (const auto earlier = SavesUnderWay::all().take(group)) earlier->finish();
  return std::make_shared<CheckpointSave::State>(without_slash(folder), parts, group, copies);
}

std::vector<TensorPart> parts_to_save(const char* what, const std::string& folder,
                                      const FullyShardedDataParallel& model,
                                      const optim::Optimizer* optimizer, const Group& given) {
  const int all = distributed::world().size(), ranks = model.group().size();
  if (!given.defined() && ranks < all) {
    fail(ErrorCode::kValue, "[", what, "] the model's group has ", ranks, " of the ", all,
         " ranks, and another group might write ", folder,
         " as well: pass the group of all ranks that write it, distributed::world(), or the "
         "model's group if it writes alone");
  }
  std::vector<TensorPart> parts = parts_of(model);
  if (optimizer != nullptr) {
    for (TensorPart& part : parts_of(*optimizer, model)) parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace

void CheckpointSave::wait() {
  if (state_ == nullptr) return;
  if (state_->finished) return state_->check();
  SavesUnderWay::all().take(state_->group);
  state_->finish();
}

bool CheckpointSave::done() const { return state_ == nullptr || state_->done.load(); }

void save_parts(const std::string& folder, const std::vector<TensorPart>& parts,
                const Group& group) {
  const auto state = prepare(folder, parts, group, /*copies=*/false);
  state->write();
  state->finish();
}

CheckpointSave save_async(const std::string& folder, const std::vector<TensorPart>& parts,
                          const Group& group) {
  const auto state = prepare(folder, parts, group, /*copies=*/true);
  state->start();
  SavesUnderWay::all().add(state);
  return CheckpointSave(state);
}

void save_sharded(const std::string& folder, const FullyShardedDataParallel& model,
                  const optim::Optimizer* optimizer, const Group& given) {
  const auto parts = parts_to_save("save_sharded", folder, model, optimizer, given);
  save_parts(folder, parts, given.defined() ? given : model.group());
}

void save_sharded(const std::string& folder, const Module& module,
                  const optim::Optimizer* optimizer, const Group& group) {
  std::vector<TensorPart> parts = parts_of(module);
  if (optimizer != nullptr) {
    for (TensorPart& part : parts_of(*optimizer, module)) parts.push_back(std::move(part));
  }
  save_parts(folder, parts, group);
}

CheckpointSave save_async(const std::string& folder, const FullyShardedDataParallel& model,
                          const optim::Optimizer* optimizer, const Group& given) {
  const auto parts = parts_to_save("save_async", folder, model, optimizer, given);
  return save_async(folder, parts, given.defined() ? given : model.group());
}

}  // namespace mytorch::nn
