#include "options.h"

#include <CLI/CLI.hpp>
#include <iostream>

std::optional<Options> parse_options(int argc, char** argv, int* status) {
  CLI::App app("Trains a small GPT-2 on a text, and writes like it.", "gpt");
  app.require_subcommand(1);
  const auto natural = CLI::Range(int64_t{1}, int64_t{1} << 31);
  const auto whole = CLI::Range(int64_t{0}, int64_t{1} << 31);

  TrainOptions train;
  CLI::App* training = app.add_subcommand("train", "Trains a model, or goes on with its training");
  training->add_option("run", train.run, "Folder of the checkpoints, the log and the model")
      ->required();
  training->add_option("--text", train.text, "File or folder of texts")->capture_default_str();
  training->add_option("--tokens", train.tokens, "chars (the characters of the text) or bytes")
      ->capture_default_str();
  training->add_option("--layers", train.layers, "Layers")->check(natural)->capture_default_str();
  training->add_option("--width", train.width, "Features of a token")
      ->check(natural)
      ->capture_default_str();
  training->add_option("--heads", train.heads, "Heads of attention")
      ->check(natural)
      ->capture_default_str();
  training->add_option("--context", train.context, "Tokens of a sequence")
      ->check(natural)
      ->capture_default_str();
  training->add_option("--dropout", train.dropout, "Probability of dropout")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  training->add_option("--batch", train.batch, "Sequences of a step")
      ->check(natural)
      ->capture_default_str();
  training->add_option("--steps", train.steps, "Steps of the whole training")
      ->check(natural)
      ->capture_default_str();
  training->add_option("--lr", train.lr, "Largest learning rate")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  training->add_option("--warmup", train.warmup, "Steps in which the learning rate rises")
      ->check(whole)
      ->capture_default_str();
  training->add_option("--weight-decay", train.weight_decay, "Weight decay of matrices")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  training->add_option("--clip", train.clip, "Largest norm of the gradient; 0 for none")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  training->add_option("--log-every", train.log_every, "Steps between lines of output")
      ->check(natural)
      ->capture_default_str();
  training
      ->add_option("--eval-every", train.eval_every,
                   "Steps between validations, each of which writes a checkpoint; 0 for none")
      ->check(whole)
      ->capture_default_str();
  training->add_option("--autocast", train.autocast, "Type of matrix products")
      ->check(CLI::IsMember({"bfloat16", "float16"}));

  SampleOptions sample;
  CLI::App* sampling = app.add_subcommand("sample", "Writes a text with a trained model");
  sampling->add_option("run", sample.run, "Folder of the training")->required();
  sampling->add_option("--prompt", sample.prompt, "Beginning of the text");
  sampling->add_option("--length", sample.length, "Tokens to write")
      ->check(natural)
      ->capture_default_str();
  sampling->add_option("--temperature", sample.temperature, "0 takes the likeliest token")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  sampling->add_option("--top-k", sample.top_k, "Draw from the k likeliest tokens; 0 for all")
      ->check(whole)
      ->capture_default_str();
  sampling->add_option("--top-p", sample.top_p, "Draw from the likeliest tokens of this mass")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();

  const auto add_common = [](CLI::App* command, auto& options) {
    command->add_option("--device", options.device, "Device: cpu, cuda, ...")
        ->capture_default_str();
    command->add_option("--threads", options.threads, "Number of threads (default: all processors)")
        ->check(CLI::Range(1, 4096));
    command->add_option("--seed", options.seed, "Seed of the random numbers")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
  };
  add_common(training, train);
  add_common(sampling, sample);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    *status = app.exit(error, std::cout, std::cerr) == 0 ? 0 : 1;
    return std::nullopt;
  }
  Options options;
  if (training->parsed()) options.train = train;
  if (sampling->parsed()) options.sample = sample;
  return options;
}
