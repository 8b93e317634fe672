#include "bench/comm/bare.h"

#ifdef BENCH_MPI
#include <mpi.h>

#include <stdexcept>

namespace bench {
namespace {

void check(int code) {
  if (code != MPI_SUCCESS) throw std::runtime_error("MPI failed");
}

class Mpi final : public Bare {
 public:
  Mpi() { check(MPI_Comm_dup(MPI_COMM_WORLD, &comm_)); }
  std::string name() const override {
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    MPI_Get_library_version(text, &length);
    const std::string version(text, static_cast<size_t>(length));
    return version.substr(0, version.find_first_of(",\n"));
  }
  void run(Collective what, const void* send, void* recv, int64_t count, bool bfloat16) override {
    const MPI_Datatype type = bfloat16 ? MPI_UINT16_T : MPI_FLOAT;
    const int n = static_cast<int>(count);
    switch (what) {
      case Collective::kAllReduce:
        return check(MPI_Allreduce(MPI_IN_PLACE, recv, n, type, MPI_SUM, comm_));
      case Collective::kAllGather:
        return check(MPI_Allgather(send, n, type, recv, n, type, comm_));
      case Collective::kReduceScatter:
        return check(MPI_Reduce_scatter_block(send, recv, n, type, MPI_SUM, comm_));
    }
  }
  void synchronize() override {}

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
};

}  // namespace

std::unique_ptr<Bare> bare_mpi(const mytorch::distributed::Group& /*world*/) {
  return std::make_unique<Mpi>();
}

}  // namespace bench
#else
std::unique_ptr<bench::Bare> bench::bare_mpi(const mytorch::distributed::Group& /*world*/) {
  return nullptr;
}
#endif
