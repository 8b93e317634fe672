#include "distributed/engines/mpi/reductions.h"

#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "distributed/engines/mpi/communicator.h"
#include "distributed/engines/mpi/types.h"
#include "mytorch/backend/comm.h"

namespace mytorch::comm_mpi {

using sdk::at;
using sdk::bytes_of;

namespace {

// Memory of elements, for what MPI cannot do in place.
class Buffer {
 public:
  Buffer(int64_t count, mt_dtype dtype)
      : data_(std::make_unique_for_overwrite<char[]>(bytes_of(count, dtype))) {}
  void* get() { return data_.get(); }

 private:
  std::unique_ptr<char[]> data_;
};

// Whether [a, a + bytes) and [b, b + other) have a byte in common.
bool overlap(const void* a, int64_t bytes, const void* b, int64_t other) {
  const auto x = reinterpret_cast<uintptr_t>(a), y = reinterpret_cast<uintptr_t>(b);
  return x < y + static_cast<uintptr_t>(other) && y < x + static_cast<uintptr_t>(bytes);
}

// The operand of a reduction: `send`, or scaled elements in a buffer.
class ReductionOperand {
 public:
  ReductionOperand(const void* send, int64_t count, mt_dtype dtype, const mt_reduction& reduction)
      : data_(send) {
    sdk::check_reduction(dtype, reduction);
    if (reduction.scale == 1) return;
    buffer_ = std::make_unique<Buffer>(count, dtype);
    mt_reduction scaling = reduction;
    scaling.op = MT_REDUCE_SUM;
    sdk::reduce_range(dtype, scaling, &send, 1, buffer_->get(), 0, count);
    data_ = buffer_->get();
  }
  const void* data() const { return data_; }

 private:
  std::unique_ptr<Buffer> buffer_;
  const void* data_;
};

// Divides a sum by the number of ranks, if the reduction is an average.
void complete(void* data, int64_t count, mt_dtype dtype, const mt_reduction& reduction,
              int32_t ranks) {
  if (reduction.op != MT_REDUCE_AVERAGE) return;
  sdk::visit_any_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = sdk::Combined<T>;
    auto* values = static_cast<T*>(data);
    for (int64_t i = 0; i < count; ++i) {
      if constexpr (sdk::is_complex_type<T>) {
        values[i] /= static_cast<typename T::value_type>(ranks);
      } else if constexpr (!std::is_same_v<T, bool>) {
        values[i] =
            static_cast<T>(static_cast<C>(static_cast<C>(values[i]) / static_cast<C>(ranks)));
      }
    }
  });
}

const void* in_place(const void* send, const void* recv) {
  return send == recv ? MPI_IN_PLACE : send;
}

// Calls reduce(first, n) for parts of `count` elements that MPI takes in one call.
template <class Reduce>
int in_parts(int64_t count, const Reduce& reduce) {
  int64_t first = 0;
  do {
    const int64_t n = std::min(count - first, max_count());
    if (const int status = reduce(first, n); status != MT_OK) return status;
    first += n;
  } while (first < count);
  return MT_OK;
}

int reduce_part(mt_group* group, const void* send, void* recv, int64_t count, mt_dtype dtype,
                const mt_reduction* reduction, int32_t root, const mt_comm_call* call) {
  std::unique_ptr<ReductionOperand> operand;
  const int status = run(group, call, "MPI_Ireduce", [&](Communicator& self, MPI_Request* request) {
    operand = std::make_unique<ReductionOperand>(send, count, dtype, *reduction);
    const bool receives = self.rank == root;
    return MPI_Ireduce(receives ? in_place(operand->data(), recv) : operand->data(),
                       receives ? recv : nullptr, int_of(count), mpi_type(dtype),
                       mpi_op(dtype, reduction->op), root, self.comm, request);
  });
  if (status == MT_OK && of(group).rank == root) {
    complete(recv, count, dtype, *reduction, of(group).ranks);
  }
  if (status != MT_OK) (void)operand.release();  // MPI may still read it
  return status;
}

// A block of an all-reduce that is under way.
struct Block {
  std::unique_ptr<Buffer> source;  // for what is scaled or reduced in place
  MPI_Request request = MPI_REQUEST_NULL;
};

}  // namespace

int mpi_reduce(void*, mt_group* group, const void* send, void* recv, int64_t count, mt_dtype dtype,
               const mt_reduction* reduction, int32_t root, const mt_comm_call* call) {
  return in_parts(count, [&](int64_t first, int64_t n) {
    return reduce_part(group, at(send, first, dtype), at(recv, first, dtype), n, dtype, reduction,
                       root, call);
  });
}

// In blocks, a few of which are under way at a time. MPI allocates memory as large as what it
// reduces, and reduces in place by its slowest algorithm; blocks and copies of them stay in caches.
int mpi_all_reduce(void*, mt_group* group, const void* send, void* recv, int64_t count,
                   mt_dtype dtype, const mt_reduction* reduction, const mt_comm_call* call) {
  constexpr int64_t kBytes = 256 << 10, kUnderWay = 4;
  return sdk::guarded_comm(host, [&]() -> int {
    Communicator& self = of(group);
    if (self.aborted) return MT_COMM_ABORTED;
    sdk::check_reduction(dtype, *reduction);
    const int64_t width = sdk::itemsize(dtype);
    const int64_t most = std::min(std::max<int64_t>(kBytes / width, 1), max_count());
    const int64_t blocks = std::max<int64_t>((count + most - 1) / most, 1);
    mt_reduction scaling = *reduction;
    scaling.op = MT_REDUCE_SUM;
    auto under_way = std::make_unique<std::array<Block, kUnderWay>>();
    const auto block = [&](int64_t i) -> Block& {
      return (*under_way)[static_cast<size_t>(i % kUnderWay)];
    };
    const auto size = [&](int64_t i) { return std::min(most, count - i * most); };
    const auto start = [&](int64_t i) {
      const int64_t n = size(i);
      const void* from = at(send, i * most, dtype);
      void* to = at(recv, i * most, dtype);
      if (from == to || reduction->scale != 1) {
        std::unique_ptr<Buffer>& source = block(i).source;
        if (source == nullptr) source = std::make_unique<Buffer>(std::min(most, count), dtype);
        if (reduction->scale != 1) {
          sdk::reduce_range(dtype, scaling, &from, 1, source->get(), 0, n);
        } else if (n > 0) {
          std::memcpy(source->get(), from, bytes_of(n, dtype));
        }
        from = source->get();
      }
      const Serialized serialized;
      check(MPI_Iallreduce(from, to, int_of(n), mpi_type(dtype), mpi_op(dtype, reduction->op),
                           self.comm, &block(i).request),
            "MPI_Iallreduce");
    };
    try {
      for (int64_t begun = 0, done = 0; done < blocks; ++done) {
        for (; begun < std::min(blocks, done + kUnderWay); ++begun) start(begun);
        if (const int status = finish(self, {block(done).request}, *call); status != MT_OK) {
          (void)under_way.release();  // MPI may still read it
          return status;
        }
        complete(at(recv, done * most, dtype), size(done), dtype, *reduction, self.ranks);
      }
    } catch (...) {
      (void)under_way.release();
      self.aborted = true;
      any_failed = true;
      throw;
    }
    return MT_OK;
  });
}

int mpi_reduce_scatter_v(void*, mt_group* group, const void* send, void* recv,
                         const int64_t* counts, mt_dtype dtype, const mt_reduction* reduction,
                         const mt_comm_call* call) {
  Communicator& self = of(group);
  const int64_t all = std::accumulate(counts, counts + self.ranks, int64_t{0});
  const int64_t mine = counts[self.rank];
  if (all > max_count()) {
    // As reductions to one rank after the other.
    const int64_t width = sdk::itemsize(dtype);
    std::unique_ptr<Buffer> apart;
    if (overlap(send, all * width, recv, mine * width)) {
      apart = std::make_unique<Buffer>(mine, dtype);
    }
    void* to = apart != nullptr ? apart->get() : recv;
    int64_t first = 0;
    for (int32_t rank = 0; rank < self.ranks; ++rank) {
      const int status = mpi_reduce(nullptr, group, at(send, first, dtype), to, counts[rank], dtype,
                                    reduction, rank, call);
      if (status != MT_OK) {
        (void)apart.release();
        return status;
      }
      first += counts[rank];
    }
    if (apart != nullptr && mine > 0) {
      std::memcpy(recv, apart->get(), bytes_of(mine, dtype));
    }
    return MT_OK;
  }
  std::vector<int> sizes;
  std::unique_ptr<ReductionOperand> operand;
  std::unique_ptr<Buffer> apart;
  const int status =
      run(group, call, "MPI_Ireduce_scatter", [&](Communicator&, MPI_Request* request) {
        for (int32_t rank = 0; rank < self.ranks; ++rank) sizes.push_back(int_of(counts[rank]));
        operand = std::make_unique<ReductionOperand>(send, all, dtype, *reduction);
        const int64_t width = sdk::itemsize(dtype);
        void* to = recv;
        if (overlap(operand->data(), all * width, recv, mine * width)) {
          apart = std::make_unique<Buffer>(mine, dtype);
          to = apart->get();
        }
        return MPI_Ireduce_scatter(operand->data(), to, sizes.data(), mpi_type(dtype),
                                   mpi_op(dtype, reduction->op), self.comm, request);
      });
  if (status != MT_OK) {
    (void)operand.release();
    (void)apart.release();
    return status;
  }
  if (apart != nullptr && mine > 0) {
    std::memcpy(recv, apart->get(), bytes_of(mine, dtype));
  }
  complete(recv, mine, dtype, *reduction, self.ranks);
  return status;
}

int mpi_reduce_scatter(void* self, mt_group* group, const void* send, void* recv, int64_t count,
                       mt_dtype dtype, const mt_reduction* reduction, const mt_comm_call* call) {
  const std::vector<int64_t> counts(static_cast<size_t>(of(group).ranks), count);
  return mpi_reduce_scatter_v(self, group, send, recv, counts.data(), dtype, reduction, call);
}

}  // namespace mytorch::comm_mpi
