#include "tests/formats/formats.h"

#include <elf.h>

#include <cstring>

#include "dispatcher/choice/table_file.h"
#include "dispatcher/custom/schema.h"
#include "dispatcher/loader/library_check.h"
#include "dispatcher/table/defaults.h"
#include "mytorch/mytorch.h"
#include "mytorch/nn/data/cifar.h"
#include "mytorch/nn/data/image_folder.h"
#include "mytorch/nn/data/mnist.h"
#include "mytorch/nn/data/text_lines.h"
#include "mytorch/nn/serialize.h"
#include "tests/nn/data/idx_bytes.h"
#include "tests/nn/data/image_bytes.h"
#include "tests/nn/data/temp_directory.h"

namespace mytorch::testing {
namespace {

// Calls `read`, which may refuse the file only with Error(kIo) that names it.
template <class F>
void read_named(const std::string& path, F read) {
  try {
    read();
  } catch (const Error& error) {
    const std::string text = error.what();
    require(error.code() == ErrorCode::kIo, "refused with another code: " + text);
    require(text.find(path) != std::string::npos, "the message does not name the file: " + text);
    require(text.size() < 2000, "the message is too long: " + text);
    throw;
  }
}

// ---- files ----

Format safetensors(const std::string& folder) {
  const std::string path = folder + "/model.safetensors";
  nn::save_safetensors(path,
                       {{"a.weight", tensor({1.5, -2.5, 3.5, 4.5}).view({2, 2})},
                        {"a.bias", tensor({0.5}, kFloat64)},
                        {"mask", tensor({1, 0, 1}, kBool)},
                        {"halves", tensor({1, 2, 3}, kBFloat16)},
                        {"none", tensor(std::vector<int64_t>{})}},
                       {{"format", "pt"}, {"model", "small"}});
  const std::string whole = read_file(path);
  uint64_t header = 0;
  std::memcpy(&header, whole.data(), sizeof(header));
  const auto read = [path](const std::string& bytes) {
    write_file(path, bytes);
    read_named(path, [&] {
      const nn::SafetensorsFile file(path);
      uint64_t length = 0;
      std::memcpy(&length, bytes.data(), sizeof(length));
      size_t total = sizeof(length) + length;
      for (const auto& entry : file.entries()) {
        const Tensor t = file.load(entry.name);
        const auto n = static_cast<size_t>(t.numel() * t.element_size());
        require(n == static_cast<size_t>(entry.end - entry.begin), "another number of bytes");
        require(n == 0 || std::memcmp(t.raw_data(), &bytes[sizeof(length) + length + entry.begin],
                                      n) == 0,
                "other bytes");
        total += n;
      }
      require(total == bytes.size(), "bytes of the file that belong to nothing");
    });
  };
  return {"safetensors", {whole}, sizeof(header) + header, read};
}

// The other file of the data set is valid.
Format idx(const std::string& folder, bool packed, bool images) {
  const auto pack = [packed](const std::string& bytes) { return packed ? gzip(bytes) : bytes; };
  const std::string own = folder + (packed ? "/gz" : "/plain") + (images ? "-images" : "-labels");
  std::filesystem::create_directory(own);
  const auto read = [own, pack, images](const std::string& bytes) {
    write_file(own + "/train-images-idx3-ubyte", images ? bytes : pack(idx_images(3)));
    write_file(own + "/train-labels-idx1-ubyte", images ? pack(idx_labels(3)) : bytes);
    read_named(own, [&] {
      const nn::data::MNIST mnist(own, nn::data::Split::kTrain);
      require(mnist.images().numel() == mnist.size() * 784, "another number of pixels");
      for (int64_t k = 0; k < mnist.size(); ++k) {
        require(mnist.labels().const_data<int64_t>()[k] < 10, "a label of 10 or more");
        require(mnist.get(k).data.numel() == 784, "another number of pixels");
      }
    });
  };
  const std::string name =
      std::string(images ? "idx images" : "idx labels") + (packed ? ", gzip" : "");
  return {name, {pack(images ? idx_images(3) : idx_labels(3))}, size_t{images ? 16u : 8u}, read};
}

Format choice_table(const std::string& folder) {
  const std::string path = folder + "/choice.txt";
  const std::string machine = "a machine";
  const std::vector<Measurement> measurements = {
      {"mm", "cpu", 0x0123456789abcdef, "mm(float32[64, 64])", {{"cpu-openmp.gemm", 1e-5}}},
      {"sum", "cpu", 7, "sum(float32[8])", {{"cpu-openmp.rows", 1e-6}, {"reference", 2.5e-3}}}};
  merge_table(path, machine, measurements);
  const std::string whole = read_file(path);
  const auto read = [path, machine](const std::string& bytes) {
    write_file(path, bytes);
    const TableFile file = read_table(path, machine);
    for (const Measurement& m : file.measurements) {
      require(!m.timings.empty(), "a measurement without times");
      for (const Timing& t : m.timings) require(t.seconds > 0, "a time that is not positive");
    }
    table_hash(file.measurements);
    if (!file.problem.empty()) throw Error(ErrorCode::kIo, file.problem);
  };
  return {"choice table", {whole}, whole.size(), read};
}

// What check_library reads of a shared library: the header, one segment and the seal.
Format library(const std::string& folder) {
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
#if defined(__aarch64__)
  header.e_machine = EM_AARCH64;
#else
  header.e_machine = EM_X86_64;
#endif
  header.e_phoff = sizeof(header);
  header.e_phnum = 1;
  header.e_phentsize = sizeof(Elf64_Phdr);
  Elf64_Phdr segment{};
  segment.p_type = PT_LOAD;
  segment.p_filesz = sizeof(header) + sizeof(segment);
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  bytes.append(reinterpret_cast<const char*>(&segment), sizeof(segment));
  bytes.append(1000, 'x');
  std::string sealed = bytes;
  const uint64_t sum =
      crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size()));
  sealed.append("mtseal01").append(reinterpret_cast<const char*>(&sum), sizeof(sum));
  const std::string path = folder + "/backend.so";
  const auto read = [path](const std::string& damaged) {
    write_file(path, damaged);
    read_named(path, [&] { check_library(path); });
  };
  return {"library", {bytes, sealed}, sizeof(header) + sizeof(segment), read};
}

// A format that mytorch may have been built without is refused then.
Format image(const std::string& folder, const std::string& name, const std::string& sample) {
  const std::string path = folder + "/" + name;
  const auto read = [path](const std::string& bytes) {
    write_file(path, bytes);
    try {
      const Tensor pixels = nn::data::read_image(path);
      require(pixels.dim() == 3 && pixels.size(0) == 3 && pixels.numel() > 0, "no image");
    } catch (const Error& error) {
      const bool expected =
          error.code() == ErrorCode::kIo || error.code() == ErrorCode::kUnsupported;
      require(expected, std::string("refused with another code: ") + error.what());
      throw;
    }
  };
  return {name, {sample}, 64, read};
}

Format cifar(const std::string& folder, bool packed) {
  const std::string name = packed ? "CIFAR, gzip" : "CIFAR";
  const std::string path = folder + "/" + (packed ? "packed" : "records");
  std::filesystem::create_directory(path);
  std::string records;
  for (const char label : {3, 9}) records += std::string(1, label) + std::string(3072, 'x');
  const auto read = [path](const std::string& bytes) {
    write_file(path + "/test_batch.bin", bytes);
    read_named(path, [&] {
      const nn::data::CIFAR10 data(path, nn::data::Split::kTest);
      for (int64_t i = 0; i < data.size(); ++i) {
        require(data.labels().const_data<int64_t>()[i] < 10, "a label of 10 or more");
        require(data.get(i).data.numel() == 3072, "another number of pixels");
      }
    });
  };
  return {name, {packed ? gzip(records) : records}, 100, read};
}

Format text_lines(const std::string& folder) {
  const std::string path = folder + "/lines.txt";
  const std::string text = "one\ntwo\r\n\nthree";
  const auto read = [path](const std::string& bytes) {
    write_file(path, bytes);
    read_named(path, [&] {
      const nn::data::TextLines lines(path);
      for (int64_t i = 0; i < lines.size(); ++i) {
        require(lines.get(i).data.numel() == static_cast<int64_t>(lines.line(i).size()),
                "another length");
      }
    });
  };
  return {"text lines", {text, gzip(text)}, 40, read};
}

// ---- texts ----

void read_schema(const std::string& text) {
  const Schema schema = parse_schema(text);
  uint32_t end = 0;
  for (const ArgInfo& arg : schema.args) {
    require(arg.offset >= end, "fields that overlap");
    end = arg.offset + 1;
    if (arg.default_text != nullptr) default_value(arg);
  }
  require(end <= schema.args_size, "a field outside of the struct");
}

Format schema() {
  return {"schema",
          {"npu::rms_norm(Tensor x, Tensor? weight=None, *, float eps=1e-6) -> Tensor",
           "lib::op.over(Tensor[] xs, int[] dims=[0, -1], bool keep=False, str mode='a', "
           "ScalarType? dtype=None) -> (Tensor a, Tensor b)",
           "a::b(Operand self, Scalar alpha=1, float[]? scales=[0.5, 2], int? n=3) -> Tensor"},
          200,
          read_schema};
}

Format names() {
  return {"operator names",
          {"add.Tensor", "add", "sum.dim_IntList", "npu::rms_norm", "aten::add_.Tensor"},
          20,
          [](const std::string& name) { call(name, {}); }};
}

Format devices() {
  return {"devices", {"cpu", "cuda:1", "npu:12"}, 8, [](const std::string& name) {
            require(!Device(name).str().empty(), "a device without a name");
          }};
}

Format types() {
  return {"element types", {"float32", "bool", "bfloat16"}, 8, [](const std::string& name) {
            require(dtype_name(dtype_from_name(name.c_str())) != nullptr, "a type without a name");
          }};
}

Format equations() {
  const auto read = [](const std::string& equation) {
    const Tensor x = ones({2, 2}), y = ones({2, 2});
    call("einsum", {equation, std::vector<Tensor>{x, y}});
  };
  return {"equations of einsum",
          {"ij,jk->ik", "...ij,...jk->...ik", "ii,jj", "ij,ij->", " a b , b c -> a c "},
          20,
          read};
}

}  // namespace

std::vector<Format> all_formats(const std::string& folder) {
  std::vector<Format> all = {safetensors(folder),
                             choice_table(folder),
                             library(folder),
                             schema(),
                             names(),
                             devices(),
                             types(),
                             equations()};
  all.push_back(image(folder, "PPM", ppm(5, 4)));
  all.push_back(image(folder, "PNG", from_hex(kPng)));
  all.push_back(image(folder, "JPEG", from_hex(kJpeg)));
  all.push_back(text_lines(folder));
  for (const bool packed : {false, true}) {
    all.push_back(cifar(folder, packed));
    for (const bool images : {false, true}) all.push_back(idx(folder, packed, images));
  }
  for (Format& format : model_formats(folder)) all.push_back(std::move(format));
  for (Format& format : program_formats(folder)) all.push_back(std::move(format));
  return all;
}

}  // namespace mytorch::testing
