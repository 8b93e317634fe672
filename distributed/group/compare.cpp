// What ranks compare before each call if MYTORCH_DISTRIBUTED_CHECK=1.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "core/types/errors.h"
#include "distributed/group/state.h"
#include "mytorch/device_memory.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/to.h"

namespace mytorch::distributed {
namespace {

constexpr mt_dtype kByte{MT_UINT, 8, 1};

Tensor bytes(size_t n) { return mytorch::empty({static_cast<int64_t>(n)}, kUInt8); }

// Gathers `n` elements of each rank, which must be plain bytes.
template <class T>
int gather(GroupState& state, const std::vector<T>& mine, std::vector<T>* all,
           const mt_comm_call& call) {
  const mt_comm& comm = state.engine->comm;
  const size_t n = mine.size() * sizeof(T);
  all->resize(mine.size() * static_cast<size_t>(state.size));
  const Tensor given = bytes(n);
  std::memcpy(given.data_ptr(), mine.data(), n);
  const Tensor sent = given.to(state.device);
  const Tensor received = bytes(n * static_cast<size_t>(state.size)).to(state.device);
  // The call may run on another stream than these copies, and the next one.
  if (!state.device.is_cpu()) synchronize(state.device);
  const int status = comm.all_gather(comm.self, state.group, sent.raw_data(), received.data_ptr(),
                                     static_cast<int64_t>(n), kByte, &call);
  if (status != MT_OK) return status;
  if (!state.device.is_cpu()) synchronize(state.device);
  const Tensor back = received.to(kCPU);
  std::memcpy(all->data(), back.raw_data(), all->size() * sizeof(T));
  return MT_OK;
}

[[noreturn]] void disagree(GroupState& state, const CallName& name, const std::string& how) {
  const CallSite site = name.site.known() ? name.site : CallSite::here();
  const std::string here = site.text();
  const std::string text = absl::StrCat(
      "[", name.signature.op, "] the ranks of group ", state.name, " disagree about call #",
      name.number, ": ", how,
      here.empty() ? "" : absl::StrCat(" (on rank ", state.rank, " called from ", here, ")"));
  state.fail(text);
  throw Error(ErrorCode::kValue, text);
}

int compare_signatures(GroupState& state, const CallName& name, const mt_comm_call& call) {
  std::vector<Signature> all;
  const int status = gather(state, std::vector<Signature>{name.signature}, &all, call);
  if (status != MT_OK) return status;
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    disagree(
        state, name,
        absl::StrCat("rank 0 calls ", all[0].text(), "; rank ", rank, " calls ", all[rank].text()));
  }
  return MT_OK;
}

int compare_parts(GroupState& state, const CallName& name, const std::vector<int64_t>& parts,
                  const mt_comm_call& call) {
  std::vector<int64_t> all;
  const int status = gather(state, parts, &all, call);
  if (status != MT_OK) return status;
  const size_t n = parts.size();
  const auto text = [&](size_t rank) { return shape_str(IntList(&all[rank * n], n)); };
  for (size_t rank = 1; rank < static_cast<size_t>(state.size); ++rank) {
    if (std::equal(&all[0], &all[0] + n, &all[rank * n])) continue;
    disagree(state, name,
             absl::StrCat("the parts have ", text(0), " elements on rank 0 and ", text(rank),
                          " on rank ", rank));
  }
  return MT_OK;
}

int compare_exchanged(GroupState& state, const CallName& name, const Call& call,
                      const mt_comm_call& comm_call) {
  std::vector<int64_t> mine = call.sent, all;
  mine.insert(mine.end(), call.expected.begin(), call.expected.end());
  const int status = gather(state, mine, &all, comm_call);
  if (status != MT_OK) return status;
  const auto ranks = static_cast<size_t>(state.size);
  for (size_t from = 0; from < ranks; ++from) {
    for (size_t to = 0; to < ranks; ++to) {
      const int64_t sent = all[from * 2 * ranks + to], expected = all[(2 * to + 1) * ranks + from];
      if (sent == expected) continue;
      disagree(state, name,
               absl::StrCat("rank ", from, " sends ", sent, " elements to rank ", to,
                            ", which expects ", expected));
    }
  }
  return MT_OK;
}

}  // namespace

int compare(GroupState& state, const CallName& name, const Call& call,
            const mt_comm_call& comm_call) {
  if (!call.peers.empty()) return MT_OK;  // the other ranks may be at any call of theirs
  int status = compare_signatures(state, name, comm_call);
  if (status == MT_OK && !call.parts.empty()) {
    status = compare_parts(state, name, call.parts, comm_call);
  }
  if (status == MT_OK && !call.sent.empty()) {
    status = compare_exchanged(state, name, call, comm_call);
  }
  return status;
}

}  // namespace mytorch::distributed
