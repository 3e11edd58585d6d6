"""Run two steps of supervised fine-tuning on a file of chats, as TRL's users start with it.

The module runs as a script, in its own process, with the file's path and a folder for its output.
The model is tiny and random: the test checks that the file works unchanged, and which tokens are
learned. It prints one JSON object: the losses of the steps, and the text that the first loss
covers.
"""

import json
import sys
from pathlib import Path
from typing import Any

CHAT_TEMPLATE = """\
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{% if message.role == "assistant" -%}
{% generation %}{{ message.content }}<|im_end|>{% endgeneration %}
{%- else -%}
{{ message.content }}<|im_end|>
{%- endif %}
{% endfor -%}
"""
"""ChatML that marks where the assistant speaks."""


def _tokenizer(text: str) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    pieces = Tokenizer(models.BPE())
    pieces.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pieces.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<|im_start|>", "<|im_end|>", "<|pad|>"]
    pieces.train_from_iterator(
        [text],
        trainers.BpeTrainer(vocab_size=600, special_tokens=special, initial_alphabet=alphabet),
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=pieces,
        eos_token="<|im_end|>",
        pad_token="<|pad|>",
        chat_template=CHAT_TEMPLATE,
    )


def main(chats: Path, out: Path) -> None:
    """Train, and print the result."""
    from datasets import load_dataset
    from transformers import LlamaConfig, LlamaForCausalLM
    from trl import SFTConfig, SFTTrainer

    tokenizer = _tokenizer(chats.read_text())
    shape = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=8192,
    )
    trainer = SFTTrainer(
        model=LlamaForCausalLM(shape),
        args=SFTConfig(
            output_dir=str(out),
            max_steps=2,
            per_device_train_batch_size=1,
            max_length=8192,
            assistant_only_loss=True,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            bf16=False,
            dataloader_pin_memory=False,
        ),
        train_dataset=load_dataset(
            "json", data_files=str(chats), split="train", cache_dir=str(out / "cache")
        ),
        processing_class=tokenizer,
    )
    first = trainer.data_collator([trainer.train_dataset[0]])["labels"][0]
    trainer.training.train()
    losses = [log["loss"] for log in trainer.state.log_history if "loss" in log]
    learned = tokenizer.decode(first[first != -100])
    print(json.dumps({"losses": losses, "learned": learned}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
