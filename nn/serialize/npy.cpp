#include "nn/serialize/npy.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <fstream>
#include <optional>
#include <utility>

#include "core/tensor/capture_layer.h"
#include "core/types/errors.h"
#include "mytorch/grad_mode.h"
#include "nn/common/host_tensor.h"
#include "nn/serialize/atomic_file.h"
#include "nn/serialize/safetensors_header.h"

namespace mytorch::nn {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are read as they are stored");

constexpr char kMagic[] = "\x93NUMPY";
constexpr size_t kMagicBytes = 6;
constexpr uint64_t kMaxHeader = 1'000'000;

constexpr std::pair<const char*, ScalarType> kTypes[] = {
    {"|b1", kBool},    {"|u1", kUInt8},     {"|i1", kInt8},       {"<i2", kInt16},
    {"<i4", kInt32},   {"<i8", kInt64},     {"<f2", kFloat16},    {"<f4", kFloat32},
    {"<f8", kFloat64}, {"<c8", kComplex64}, {"<c16", kComplex128}};

struct Header {
  ScalarType dtype = kFloat32;
  bool fortran = false;
  std::vector<int64_t> shape;
};

// Parses the literal of a dict: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  Header run() {
    Header header;
    bool descr = false, order = false, shape = false;
    expect('{');
    while (!take('}')) {
      const std::string key = quoted();
      expect(':');
      if (key == "descr" && !descr) {
        header.dtype = dtype(quoted());
        descr = true;
      } else if (key == "fortran_order" && !order) {
        header.fortran = boolean();
        order = true;
      } else if (key == "shape" && !shape) {
        header.shape = tuple();
        shape = true;
      } else {
        refuse(absl::StrCat("its header has the key '", shown(key), "'"));
      }
      if (!take(',')) {
        expect('}');
        break;
      }
    }
    skip();
    if (at_ != text_.size() || !descr || !order || !shape) refuse("its header is damaged");
    return header;
  }

  [[noreturn]] void refuse(const std::string& reason) const {
    fail(ErrorCode::kIo, "[load_npy] file ", path_, ": ", reason);
  }

 private:
  void skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool take(char c) {
    skip();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) refuse(absl::StrCat("its header has no '", std::string(1, c), "' at ", at_));
  }
  std::string quoted() {
    expect('\'');
    const size_t end = text_.find('\'', at_);
    if (end == std::string_view::npos) refuse("its header has an open string");
    std::string found(text_.substr(at_, end - at_));
    at_ = end + 1;
    return found;
  }
  bool boolean() {
    skip();
    for (const char* word : {"False", "True"}) {
      if (!text_.substr(at_).starts_with(word)) continue;
      at_ += std::strlen(word);
      return word[0] == 'T';
    }
    refuse("its header states no order");
  }
  std::vector<int64_t> tuple() {
    std::vector<int64_t> found;
    expect('(');
    while (!take(')')) {
      skip();
      int64_t size = 0;
      const auto [end, error] =
          std::from_chars(text_.data() + at_, text_.data() + text_.size(), size);
      if (error != std::errc() || size < 0 || found.size() == kMaxDims) {
        refuse("its header has a wrong shape");
      }
      at_ = static_cast<size_t>(end - text_.data());
      found.push_back(size);
      if (!take(',')) {
        expect(')');
        break;
      }
    }
    return found;
  }
  ScalarType dtype(const std::string& descr) const {
    for (const auto& [name, type] : kTypes) {
      if (descr == name) return type;
    }
    refuse(absl::StrCat("it has elements of type '", shown(descr),
                        "', which tensors do not have: convert it with astype()"));
  }

  std::string_view text_;
  const std::string& path_;
  size_t at_ = 0;
};

}  // namespace

Tensor load_npy(const std::string& path) {
  const auto refuse = [&path](const auto&... reason) {
    fail(ErrorCode::kIo, "[load_npy] file ", path, ": ", reason...);
  };
  std::ifstream file(path, std::ios::binary);
  if (!file) refuse("cannot be opened: ", std::strerror(errno));
  char begin[kMagicBytes + 2] = {};
  file.read(begin, sizeof(begin));
  if (!file || std::memcmp(begin, kMagic, kMagicBytes) != 0) refuse("is no .npy file");
  const int major = begin[kMagicBytes];
  if (major < 1 || major > 3) refuse("has version ", major, " of the format, and 1 to 3 are known");
  uint32_t length = 0;
  file.read(reinterpret_cast<char*>(&length), major == 1 ? 2 : 4);
  if (!file || length > kMaxHeader) refuse("its header is damaged");
  std::string text(length, '\0');
  file.read(text.data(), length);
  if (!file) refuse("ends within its header");
  const Header header = HeaderParser(text, path).run();
  std::vector<int64_t> sizes = header.shape;
  if (header.fortran) std::reverse(sizes.begin(), sizes.end());
  const std::optional<int64_t> bytes = bytes_of(sizes, header.dtype);
  const auto data_begin = file.tellg();
  file.seekg(0, std::ios::end);
  const int64_t rest = file.tellg() - data_begin;
  if (!bytes || *bytes != rest) {
    refuse("has ", rest, " bytes of elements, which the shape ", shape_str(header.shape), " of ",
           dtype_name(header.dtype), " does not fit");
  }
  file.seekg(data_begin);
  Tensor tensor = fresh_host_tensor(sizes, header.dtype);
  auto* const data = fresh_data<uint8_t>(tensor);
  file.read(reinterpret_cast<char*>(data), rest);
  if (!file) refuse("cannot be read");
  if (header.dtype == kBool && std::any_of(data, data + rest, [](uint8_t x) { return x > 1; })) {
    refuse("has a bool that is not 0 or 1");
  }
  if (!header.fortran) return tensor;
  std::vector<int64_t> order;
  for (size_t i = sizes.size(); i-- > 0;) order.push_back(static_cast<int64_t>(i));
  return tensor.permute(order).contiguous();
}

void save_npy(const std::string& path, const Tensor& tensor) {
  const auto* const type =
      std::find_if(std::begin(kTypes), std::end(kTypes),
                   [&](const auto& each) { return each.second == tensor.dtype(); });
  if (type == std::end(kTypes)) {
    fail(ErrorCode::kUnsupported, "[save_npy] NumPy has no ", dtype_name(tensor.dtype()),
         ": convert the tensor with to(kFloat32)");
  }
  const NoGradGuard no_grad;
  const Tensor host = tensor.detach().to(kCPU).contiguous();
  std::string header =
      absl::StrCat("{'descr': '", type->first,
                   "', 'fortran_order': False, 'shape': ", shape_str(host.sizes()), ", }");
  // The elements begin at a multiple of 64 bytes.
  const size_t before = kMagicBytes + 4;
  header.append(63 - (before + header.size()) % 64, ' ');
  header += '\n';
  const auto length = static_cast<uint16_t>(header.size());
  AtomicFile file("save_npy", path);
  file.write(kMagic, kMagicBytes);
  file.write("\x01\x00", 2);
  file.write(&length, sizeof(length));
  file.write(header.data(), header.size());
  check_host_access(host, "save_npy");
  file.write(host.raw_data(), static_cast<size_t>(host.nbytes()));
  file.commit();
}

}  // namespace mytorch::nn
