#include "nn/parallel/split_parameters.h"

#include <algorithm>
#include <set>

#include "core/types/errors.h"
#include "mytorch/grad_mode.h"
#include "mytorch/nn/parallel/parallelize.h"
#include "mytorch/ops/copy_.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/to.h"
#include "mytorch/ops/zeros.h"
#include "nn/modules/names.h"
#include "nn/parallel/tensor_place.h"
#include "nn/parameter_access.h"

namespace mytorch::nn {
namespace parallel {

std::vector<Cut::Piece> Cut::pieces(int64_t rank, int64_t ranks) const {
  const int64_t block = size / packed, rows = rows_of_block(ranks);
  const int64_t begin = std::min(rank * rows, block), n = std::min(rows, block - begin);
  std::vector<Piece> pieces;
  for (int64_t i = 0; i < packed && n > 0; ++i) pieces.push_back({i * block + begin, i * rows, n});
  return pieces;
}

Tensor part_of(const Tensor& whole, const Cut& cut, int64_t rank, int64_t ranks) {
  const NoGradGuard no_grad;
  std::vector<int64_t> sizes = whole.sizes().vec();
  sizes[static_cast<size_t>(cut.dim)] = cut.rows(ranks);
  Tensor part = mytorch::zeros(sizes, whole.dtype(), whole.device());
  for (const auto& [begin, at, n] : cut.pieces(rank, ranks)) {
    part.narrow(cut.dim, at, n).copy_(whole.detach().narrow(cut.dim, begin, n));
  }
  return part;
}

std::vector<int64_t> whole_sizes(std::vector<int64_t> own, const Cut& cut) {
  own[static_cast<size_t>(cut.dim)] = cut.size;
  return own;
}

namespace {

// Returns the parameters that are split, by their tensors, which modules may share.
std::map<const TensorImpl*, SplitParameter> split_tensors(const Module& module) {
  std::map<const TensorImpl*, SplitParameter> tensors;
  for (Module* each : const_cast<Module&>(module).modules()) {
    const auto* split = dynamic_cast<const RankSplit*>(split_of(*each));
    if (split == nullptr || split->cuts.empty()) continue;
    detail::ParameterAccess::visit(*each, [&](const std::string& name, Tensor& member) {
      for (const auto& [own, cut] : split->cuts) {
        if (own == name) tensors.insert({member.impl(), {cut, split->group()}});
      }
    });
  }
  return tensors;
}

}  // namespace

std::map<std::string, SplitParameter> split_parameters(const Module& module) {
  std::map<std::string, SplitParameter> found;
  const auto tensors = split_tensors(module);
  if (tensors.empty()) return found;
  detail::ParameterAccess::visit(module, [&](const std::string& name, Tensor& member) {
    const auto at = tensors.find(member.impl());
    if (at != tensors.end()) found.insert({name, at->second});
  });
  return found;
}

void append_parts(std::vector<TensorPart>* parts, const TensorPart& own,
                  const SplitParameter& split) {
  const auto& [cut, group] = split;
  const auto dim = static_cast<size_t>(cut.dim);
  for (const auto& [begin, at, n] : cut.pieces(group.rank(), group.size())) {
    TensorPart part = own;
    part.sizes[dim] = n;
    if (own.dim == TensorPart::kFlat) {
      // Elements of the rank's tensor; blocks along another dimension than the first are all of it.
      const int64_t before = at * checkpoint::product(own.sizes) / own.sizes[dim];
      const int64_t numel = checkpoint::product(part.sizes);
      part.begin = std::clamp<int64_t>(own.begin - before, 0, numel);
      part.end = std::clamp<int64_t>(own.end - before, 0, numel);
      const int64_t first = part.begin == part.end ? 0 : before + part.begin - own.begin;
      part.tensor = own.tensor.narrow(0, first, part.end - part.begin);
    } else {
      part.tensor = own.tensor.narrow(cut.dim, at, n);
      part.dim = cut.dim;
      part.begin = 0;
      part.end = n;
    }
    parts->push_back(block_of(std::move(part), cut.dim, begin, cut.size));
  }
}

namespace {

// Throws if something else has split the parameter further.
void check_own(const char* op, const std::string& name, const Tensor& own,
               const SplitParameter& split) {
  const auto& [cut, group] = split;
  if (own.dim() > cut.dim && own.size(cut.dim) == cut.rows(group.size())) return;
  fail(ErrorCode::kValue, "[", op, "] '", name, "' has shape ", shape_str(own.sizes()),
       " on this rank, and ", cut.rows(group.size()), " rows along dimension ", cut.dim,
       " were expected: use save_parts() and load_parts() for a model that a "
       "FullyShardedDataParallel splits, too");
}

Tensor joined_parts(const Tensor& own, const SplitParameter& split) {
  const auto& [cut, group] = split;
  const int64_t ranks = group.size();
  const Tensor mine = own.detach().transpose(0, cut.dim).contiguous();
  std::vector<int64_t> sizes = mine.sizes().vec();
  sizes[0] *= ranks;
  const Tensor all = mytorch::empty(sizes, mine.dtype(), mine.device());
  group.all_gather(all, mine);
  const Tensor here = all.to(kCPU);
  Tensor whole = mytorch::empty(whole_sizes(own.sizes().vec(), cut), own.dtype(), kCPU);
  for (int64_t rank = 0; rank < ranks; ++rank) {
    for (const auto& [begin, at, n] : cut.pieces(rank, ranks)) {
      const Tensor rows = here.narrow(0, rank * mine.size(0) + at, n);
      whole.narrow(cut.dim, begin, n).copy_(rows.transpose(0, cut.dim));
    }
  }
  return whole;
}

}  // namespace
}  // namespace parallel

TensorMap whole_state_dict(const Module& module) {
  const NoGradGuard no_grad;
  const auto split = parallel::split_parameters(module);
  TensorMap state = module.state_dict();
  for (const auto& [name, parameter] : split) {
    parallel::check_own("whole_state_dict", name, state.at(name), parameter);
  }
  for (auto& [name, tensor] : state) {
    const auto found = split.find(name);
    tensor = found == split.end() ? tensor.detach().to(kCPU).clone()
                                  : parallel::joined_parts(tensor, found->second);
  }
  return state;
}

LoadReport load_whole_state_dict(Module& module, const TensorMap& state, bool strict) {
  TensorMap own = module.state_dict(), parts = state;
  std::string misfits;
  for (const auto& [name, split] : parallel::split_parameters(module)) {
    const auto found = parts.find(name);
    if (found == parts.end() || !found->second.defined()) continue;
    parallel::check_own("load_whole_state_dict", name, own.at(name), split);
    const std::vector<int64_t> sizes = parallel::whole_sizes(own.at(name).sizes().vec(), split.cut);
    if (!(found->second.sizes() == IntList(sizes))) {
      absl::StrAppend(&misfits, misfits.empty() ? "" : "; ", "'", name, "' has shape ",
                      shape_str(found->second.sizes()), ", the module's is ", shape_str(sizes));
      continue;
    }
    found->second =
        parallel::part_of(found->second, split.cut, split.group.rank(), split.group.size());
  }
  if (!misfits.empty()) fail(ErrorCode::kShape, "[load_whole_state_dict] ", misfits);
  return module.load_state_dict(parts, strict);
}

}  // namespace mytorch::nn
