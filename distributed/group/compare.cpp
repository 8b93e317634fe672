// What ranks compare before each call if MYTORCH_DISTRIBUTED_CHECK=1.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "core/types/errors.h"
#include "distributed/group/state.h"
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
  const int status = comm.all_gather(comm.self, state.group, sent.raw_data(), received.data_ptr(),
                                     static_cast<int64_t>(n), kByte, &call);
  if (status != MT_OK) return status;
  const Tensor back = received.to(kCPU);
  std::memcpy(all->data(), back.raw_data(), all->size() * sizeof(T));
  return MT_OK;
}

[[noreturn]] void disagree(GroupState& state, const CallName& name, const std::string& how) {
  const bool message = !name.messages.empty();
  const CallSite site = name.site.known() ? name.site : CallSite::here();
  const std::string here = site.text();
  const std::string text = absl::StrCat(
      "[", name.signature.op, "] the ranks of group ", state.name, " disagree about ",
      message ? name.text(state.rank) : absl::StrCat("call #", name.number), ": ", how,
      here.empty() ? "" : absl::StrCat(" (on rank ", state.rank, " called from ", here, ")"));
  // Ranks that have no part in a message learn of it from the store.
  if (message && state.session != nullptr) {
    try {
      state.session->store()->set(failure_key(state), text);
    } catch (const Error&) {  // they find out by themselves
    }
  }
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

// Both ranks of a message tell each other what they do. Those of one direction match in their
// order.
int compare_messages(GroupState& state, const CallName& name, const Call& call,
                     const mt_comm_call& comm_call) {
  const mt_comm& comm = state.engine->comm;
  if (comm.begin == nullptr || comm.end == nullptr) return MT_OK;  // they would wait for each other
  const size_t n = call.messages.size();
  const auto size = static_cast<int64_t>(sizeof(Signature));
  const Tensor given = bytes(n * sizeof(Signature));
  for (size_t i = 0; i < n; ++i) {
    std::memcpy(given.data<uint8_t>() + i * sizeof(Signature), &call.messages[i].signature,
                sizeof(Signature));
  }
  const Tensor sent = given.to(state.device);
  const Tensor received = bytes(n * sizeof(Signature)).to(state.device);
  const auto* from = static_cast<const char*>(sent.raw_data());
  auto* to = static_cast<char*>(received.data_ptr());
  int status = comm.begin(comm.self, state.group);
  for (size_t i = 0; i < n && status == MT_OK; ++i) {
    const int peer = call.messages[i].peer;
    const size_t at = i * sizeof(Signature);
    status = comm.send(comm.self, state.group, from + at, size, kByte, peer, &comm_call);
    if (status != MT_OK) break;
    status = comm.recv(comm.self, state.group, to + at, size, kByte, peer, &comm_call);
  }
  if (status == MT_OK) status = comm.end(comm.self, state.group, &comm_call);
  if (status != MT_OK) return status;
  const Tensor back = received.to(kCPU);
  std::vector<Signature> theirs(n);
  std::memcpy(theirs.data(), back.raw_data(), n * sizeof(Signature));
  std::vector<bool> matched(n);
  for (const Call::Message& message : call.messages) {
    const Signature& mine = message.signature;
    const char* other = message.sends ? "recv" : "send";
    size_t found = n;
    for (size_t i = n; i-- > 0;) {
      const bool fits = call.messages[i].peer == message.peer && !matched[i] &&
                        std::strcmp(theirs[i].op, other) == 0;
      if (fits) found = i;
    }
    const std::string who = absl::StrCat("rank ", state.rank, " calls ", mine.text(), "; rank ",
                                         message.peer, " calls ");
    if (found == n) disagree(state, name, absl::StrCat(who, "no ", other, " that belongs to it"));
    matched[found] = true;
    if (theirs[found].dtype != mine.dtype || theirs[found].numel != mine.numel) {
      disagree(state, name, who + theirs[found].text());
    }
  }
  return MT_OK;
}

}  // namespace

int compare(GroupState& state, const CallName& name, const Call& call,
            const mt_comm_call& comm_call) {
  if (!call.messages.empty()) return compare_messages(state, name, call, comm_call);
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
