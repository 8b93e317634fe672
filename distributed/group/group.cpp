// The calls of a group.
#include <algorithm>
#include <utility>

#include "core/types/dims.h"
#include "core/types/errors.h"
#include "distributed/group/buffer.h"
#include "distributed/group/collective.h"
#include "distributed/group/outside.h"
#include "distributed/group/state.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/to.h"

namespace mytorch::distributed {
namespace {

void check_sizes(bool hold, const Tensor& a, const char* a_name, const Tensor& b,
                 const char* b_name, const char* relation, const char* op) {
  if (!hold) {
    fail(ErrorCode::kShape, "[", op, "] ", a_name, " has shape ", shape_str(a.sizes()), " and ",
         b_name, " ", shape_str(b.sizes()), ": ", relation);
  }
  if (a.dtype() != b.dtype()) {
    fail(ErrorCode::kType, "[", op, "] ", a_name, " is ", dtype_name(a.dtype()), " and ", b_name,
         " is ", dtype_name(b.dtype()), ": convert one of them");
  }
}

// Parts of so many rows, one for each rank.
Parts checked_parts(const Tensor& tensor, IntList rows, const GroupState& state, const char* name,
                    const char* op) {
  if (static_cast<int>(rows.size()) != state.size) {
    fail(ErrorCode::kShape, "[", op, "] the rows of ", name, " are ", rows.size(),
         " numbers for a group of ", state.size, " ranks: give one for each");
  }
  const int64_t row = row_of(tensor, name, op);
  int64_t total = 0;
  for (const int64_t n : rows) {
    if (n < 0 || n > tensor.size(0) - total) {
      fail(ErrorCode::kShape, "[", op, "] ", name, " has ", tensor.size(0),
           " rows, but the given numbers of rows are ", shape_str(rows));
    }
    total += n;
  }
  if (total != tensor.size(0)) {
    fail(ErrorCode::kShape, "[", op, "] ", name, " has ", tensor.size(0), " rows, and ", total,
         " are given: the numbers of rows must add up");
  }
  return parts_of(rows, row);
}

// The messages of a rank to itself: each send goes to the receive of its number.
Work exchange_alone(const std::vector<Group::Message>& messages) {
  std::vector<Tensor> sent, received;
  for (const Group::Message& message : messages) {
    (message.sends ? sent : received).push_back(message.tensor);
  }
  if (sent.size() != received.size()) {
    fail(ErrorCode::kValue, "[exchange] ", sent.size(), " sends and ", received.size(),
         " receives of a rank alone: give as many of both");
  }
  for (size_t i = 0; i < sent.size(); ++i) {
    check_sizes(sent[i].numel() == received[i].numel(), received[i], "a received tensor", sent[i],
                "the sent one", "they have the same size", "exchange");
    copy_alone(received[i], sent[i]);
  }
  return Work();
}

// Calls the engine, or does what it would.
Work run(const std::shared_ptr<GroupState>& state, const Collective& collective, const Buffer& out,
         const Buffer& in, bool async) {
  if (is_elsewhere(*state, {out.tensor(), in.tensor()})) {
    return copy_alone(out.tensor(), in.tensor(), collective.reduction.scale);
  }
  return run_call(state, collective.call(out.memory(), in.memory()),
                  collective.start(*state, out.memory(), in.memory()),
                  {out.tensor(), in.tensor(), out.memory(), in.memory()},
                  collective.writes(*state) ? out.write_back() : nullptr, async);
}

Work run_in_place(const std::shared_ptr<GroupState>& state, const Collective& collective,
                  const Tensor& tensor, bool async) {
  collective.check(tensor, checked(state, collective.op));
  const Buffer data(tensor, *state, "tensor", collective.op);
  return run(state, collective, data, data, async);
}

// Between a tensor of each rank and `all`, which has a part for each. Only the root of a gather or
// scatter has it. The kinds ending in V have `rows`.
Work run_with_all(const std::shared_ptr<GroupState>& shared, Collective collective,
                  const Tensor& tensor, const Tensor& all, bool async, IntList rows = {}) {
  const char* op = collective.op;
  const GroupState& state = checked(shared, op);
  collective.check(tensor, state);
  using enum CollectiveKind;
  const CollectiveKind kind = collective.kind;
  const bool gathers = kind == kGather || kind == kAllGather || kind == kAllGatherV;
  const bool has_all = (kind != kGather && kind != kScatter) || collective.is_root(state);
  const Buffer part(tensor, state, "tensor", op);
  const Buffer whole(has_all ? all : tensor, state, "all", op);
  if (kind == kAllGatherV || kind == kReduceScatterV) {
    Parts& parts = gathers ? collective.out_parts : collective.in_parts;
    parts = checked_parts(all, rows, state, "all", op);
    check_sizes(tensor.numel() == parts.counts[static_cast<size_t>(state.rank)], all, "all", tensor,
                "tensor", "tensor has the rows of this rank", op);
  } else if (has_all) {
    check_sizes(all.numel() == tensor.numel() * state.size, all, "all", tensor, "tensor",
                kind == kReduceScatter ? "all has a part for each rank along dimension 0"
                                       : "all has a tensor of each rank along dimension 0",
                op);
  }
  return gathers ? run(shared, collective, whole, part, async)
                 : run(shared, collective, part, whole, async);
}

// Returns `values` of all ranks, in their order.
std::vector<int64_t> gather_ints(const Group& group, const std::vector<int64_t>& values) {
  const auto n = static_cast<int64_t>(values.size());
  const Tensor mine = mytorch::empty({n}, kInt64);
  std::copy(values.begin(), values.end(), mine.data<int64_t>());
  const Tensor sent = mine.to(group.device());
  const Tensor all = mytorch::empty({n * group.size()}, kInt64, group.device());
  group.all_gather(all, sent);
  return all.to_vector<int64_t>();
}

}  // namespace

Work run_messages(const std::shared_ptr<GroupState>& shared,
                  const std::vector<Group::Message>& messages, bool async) {
  const char* op = messages.size() != 1 ? "exchange" : messages[0].sends ? "send" : "recv";
  GroupState& state = checked(shared, op);
  const mt_comm& comm = state.engine->comm;
  need(comm.send != nullptr && comm.recv != nullptr, state, op);
  if (messages.size() != 1) need(comm.begin != nullptr, state, op);
  Call call{messages.size() == 1 ? signature_for(op, messages[0].tensor) : signature_of(op)};
  std::vector<Buffer> buffers;
  std::vector<Tensor> kept;
  for (const Group::Message& message : messages) {
    check_rank(message.peer, state, "the peer", op);
    if (message.peer == state.rank && messages.size() == 1) {
      fail(ErrorCode::kValue, "[", op, "] rank ", state.rank,
           " names itself: copy the tensor, or use exchange");
    }
    if (message.peer != state.rank) {
      call.peers.push_back(message.peer);
    }
    buffers.emplace_back(message.tensor, state, "tensor", op);
    kept.push_back(buffers.back().memory());
  }
  // Without another rank this is no call of the group, whose ranks would count it.
  if (call.peers.empty() ||
      std::any_of(messages.begin(), messages.end(), [&](const Group::Message& message) {
        return is_elsewhere(state, {message.tensor});
      })) {
    return exchange_alone(messages);
  }
  return run_call(
      shared, call,
      [&state, messages, buffers](const mt_comm_call& call) {
        const mt_comm& comm = state.engine->comm;
        int status = MT_OK;
        if (messages.size() != 1) status = comm.begin(comm.self, state.group);
        for (size_t i = 0; i < messages.size() && status == MT_OK; ++i) {
          const Tensor& memory = buffers[i].memory();
          const mt_dtype dtype = memory.impl()->abi.dl.dtype;
          status = messages[i].sends ? comm.send(comm.self, state.group, buffers[i].read(),
                                                 memory.numel(), dtype, messages[i].peer, &call)
                                     : comm.recv(comm.self, state.group, buffers[i].write(),
                                                 memory.numel(), dtype, messages[i].peer, &call);
        }
        if (messages.size() != 1 && status == MT_OK)
          status = comm.end(comm.self, state.group, &call);
        return status;
      },
      kept,
      [messages, buffers] {
        for (size_t i = 0; i < messages.size(); ++i) {
          if (!messages[i].sends) buffers[i].write_back()();
        }
      },
      async);
}

int Group::rank() const { return checked(state_, "rank").rank; }
int Group::size() const { return checked(state_, "size").size; }
Device Group::device() const { return checked(state_, "device").device; }
const std::string& Group::name() const { return checked(state_, "name").name; }
const std::string& Group::engine() const { return checked(state_, "engine").engine->name; }
uint64_t Group::sequence() const { return checked(state_, "sequence").sequence; }
Group::operator Handle() const { return {"Group", state_}; }

Work Group::broadcast(const Tensor& tensor, int src, bool async) const {
  const OutsideOfGraphs outside("Group::broadcast", "broadcast");
  return run_in_place(state_, {CollectiveKind::kBroadcast, "broadcast", src}, tensor, async);
}

Work Group::all_reduce(const Tensor& tensor, Reduction reduction, bool async) const {
  const OutsideOfGraphs outside("Group::all_reduce", "all_reduce");
  return run_in_place(state_, {CollectiveKind::kAllReduce, "all_reduce", -1, reduction}, tensor,
                      async);
}

Work Group::reduce(const Tensor& tensor, int dst, Reduction reduction, bool async) const {
  const OutsideOfGraphs outside("Group::reduce", "reduce");
  return run_in_place(state_, {CollectiveKind::kReduce, "reduce", dst, reduction}, tensor, async);
}

Work Group::gather(const Tensor& all, const Tensor& tensor, int dst, bool async) const {
  const OutsideOfGraphs outside("Group::gather", "gather_into_tensor");
  return run_with_all(state_, {CollectiveKind::kGather, "gather", dst}, tensor, all, async);
}

Work Group::scatter(const Tensor& tensor, const Tensor& all, int src, bool async) const {
  const OutsideOfGraphs outside("Group::scatter", "scatter_tensor");
  return run_with_all(state_, {CollectiveKind::kScatter, "scatter", src}, tensor, all, async);
}

Work Group::all_gather(const Tensor& all, const Tensor& tensor, bool async) const {
  const OutsideOfGraphs outside("Group::all_gather", "all_gather_into_tensor");
  return run_with_all(state_, {CollectiveKind::kAllGather, "all_gather"}, tensor, all, async);
}

Work Group::all_gather_v(const Tensor& all, const Tensor& tensor, IntList rows, bool async) const {
  const OutsideOfGraphs outside("Group::all_gather_v", "all_gather_v");
  return run_with_all(state_, {CollectiveKind::kAllGatherV, "all_gather_v"}, tensor, all, async,
                      rows);
}

Work Group::reduce_scatter(const Tensor& tensor, const Tensor& all, Reduction reduction,
                           bool async) const {
  const OutsideOfGraphs outside("Group::reduce_scatter", "reduce_scatter_tensor");
  return run_with_all(state_, {CollectiveKind::kReduceScatter, "reduce_scatter", -1, reduction},
                      tensor, all, async);
}

Work Group::reduce_scatter_v(const Tensor& tensor, const Tensor& all, IntList rows,
                             Reduction reduction, bool async) const {
  const OutsideOfGraphs outside("Group::reduce_scatter_v", "reduce_scatter_v");
  return run_with_all(state_, {CollectiveKind::kReduceScatterV, "reduce_scatter_v", -1, reduction},
                      tensor, all, async, rows);
}

Work Group::all_to_all(const Tensor& received, const Tensor& sent, bool async) const {
  const OutsideOfGraphs outside("Group::all_to_all", "all_to_all_single");
  const char* op = "all_to_all";
  GroupState& state = checked(state_, op);
  (void)row_of(sent, "sent", op);
  check_sizes(received.sizes() == sent.sizes() && sent.size(0) % state.size == 0, received,
              "received", sent, "sent", "both have the same shape, of a part for each rank", op);
  const std::vector<int64_t> rows(static_cast<size_t>(state.size), sent.size(0) / state.size);
  return all_to_all_v(received, sent, rows, rows, async);
}

Work Group::all_to_all_v(const Tensor& received, const Tensor& sent, IntList received_rows,
                         IntList sent_rows, bool async) const {
  const OutsideOfGraphs outside("Group::all_to_all_v", "all_to_all_single");
  const char* op = "all_to_all_v";
  const GroupState& state = checked(state_, op);
  const Buffer in(sent, state, "sent", op), out(received, state, "received", op);
  Collective collective{CollectiveKind::kAllToAll, op};
  collective.in_parts = checked_parts(sent, sent_rows, state, "sent", op);
  collective.out_parts = checked_parts(received, received_rows, state, "received", op);
  check_sizes(row_of(sent, "sent", op) == row_of(received, "received", op), received, "received",
              sent, "sent", "their rows have the same size", op);
  if (sent.numel() > 0 && in.read() == out.read()) {
    fail(ErrorCode::kValue, "[", op, "] received and sent are the same memory: pass two tensors");
  }
  return run(state_, collective, out, in, async);
}

void Group::barrier() const {
  const OutsideOfGraphs outside("Group::barrier");
  GroupState& state = checked(state_, "barrier");
  need(state.engine->comm.barrier != nullptr, state, "barrier");
  run_call(
      state_, {signature_of("barrier")},
      [&state](const mt_comm_call& call) {
        return state.engine->comm.barrier(state.engine->comm.self, state.group, &call);
      },
      {}, nullptr, false);
}

// ---- point to point ----

void Group::send(const Tensor& tensor, int to) const {
  const OutsideOfGraphs outside("Group::send", "send");
  exchange({{tensor, to, true}});
}

void Group::recv(const Tensor& tensor, int from) const {
  const OutsideOfGraphs outside("Group::recv", "recv");
  exchange({{tensor, from, false}});
}

Work Group::exchange(const std::vector<Message>& messages, bool async) const {
  const OutsideOfGraphs outside("Group::exchange");
  return run_messages(state_, messages, async);
}

// ---- sub-groups ----

Group Group::split(std::optional<int> color, int key) const {
  const OutsideOfGraphs outside("Group::split");
  const char* op = "split";
  GroupState& state = checked(state_, op);
  need(state.engine->comm.split != nullptr, state, op);
  if (color.has_value() && *color < 0) {
    fail(ErrorCode::kValue, "[split] the color is ", *color, ": colors are not negative");
  }
  // The ranks of the part, from what all ranks want.
  const uint64_t number = ++state.splits;
  const std::vector<int64_t> all = gather_ints(*this, {color.value_or(-1), key, state.rank});
  mt_group* part = nullptr;
  run_call(
      state_, {signature_of(op)},
      [&](const mt_comm_call& call) {
        return state.engine->comm.split(state.engine->comm.self, state.group, color.value_or(-1),
                                        key, &call, &part);
      },
      {}, nullptr, false);
  if (part == nullptr) return Group();
  std::vector<std::pair<int64_t, int>> members;
  for (int rank = 0; rank < state.size; ++rank) {
    const int64_t* at = &all[static_cast<size_t>(rank) * 3];
    if (at[0] == *color) members.emplace_back(at[1], rank);
  }
  std::sort(members.begin(), members.end());
  std::vector<int> world_ranks;
  int place = 0;
  for (const auto& [unused, rank] : members) {
    if (rank == state.rank) place = static_cast<int>(world_ranks.size());
    world_ranks.push_back(state.world_ranks[static_cast<size_t>(rank)]);
  }
  const int size = static_cast<int>(world_ranks.size());
  auto made = std::make_shared<GroupState>(state.engine, part, place, size, state.device,
                                           absl::StrCat(state.name, "/", number, ".", *color),
                                           std::move(world_ranks), state.session);
  if (state.session != nullptr) state.session->watch(made);
  return Group(std::move(made));
}

Group Group::subgroup(const std::vector<int>& ranks) const {
  const OutsideOfGraphs outside("Group::subgroup");
  GroupState& state = checked(state_, "subgroup");
  std::vector<int> seen(static_cast<size_t>(state.size), 0);
  for (const int rank : ranks) {
    check_rank(rank, state, "a rank", "subgroup");
    if (++seen[static_cast<size_t>(rank)] > 1) {
      fail(ErrorCode::kValue, "[subgroup] rank ", rank, " occurs twice");
    }
  }
  const auto found = std::find(ranks.begin(), ranks.end(), state.rank);
  if (found == ranks.end()) return split(std::nullopt);
  return split(0, static_cast<int>(found - ranks.begin()));
}

void Group::abort(const std::string& reason) const { checked(state_, "abort").fail(reason); }

std::string flight_record() { return recorder().text(); }

}  // namespace mytorch::distributed
