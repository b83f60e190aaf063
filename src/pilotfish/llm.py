"""The facade: text in, text out."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Self, Unpack

from pilotfish.answer import Answer, Result
from pilotfish.asking import choices_of
from pilotfish.decode import Decoder
from pilotfish.drafting import CORPUS, SUFFIX, Drafting, Wish
from pilotfish.errors import TemplateError, UsageError
from pilotfish.loading import load_models
from pilotfish.options import OptionArgs, Options
from pilotfish.remembered import Remembered
from pilotfish.slimming import AUTO as SLIM
from pilotfish.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from pilotfish.model import Model, TextModel

Message = Mapping[str, str]


def load(
    model: str,
    draft: str | Sequence[str] = "auto",
    context: int | None = None,
    threads: int | None = None,
    *,
    draft_corpus: str | os.PathLike[str] | None = None,
    draft_slim: str = SLIM,
    offline: bool = False,
    notice: Callable[[str], None] | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> LLM:
    """Load a model, and what drafts for it.

    Parameters
    ----------
    model
        Path of a GGUF file, a registry name, or one like `hf:org/repo:Q4_K_M` or `ollama:NAME:TAG`.
    draft
        `auto`: the suffix drafter, and the registry's draft model if it is in the cache. `off`. `suffix`. A
        model, which means the suffix drafter and this model. Or several of these.
    context
        Most tokens of prompt and answer together; by default the model's, at most 8192.
    threads
        Threads of a pass; by default as many as the machine, or the container, has cores.
    draft_corpus
        A folder of text or code, in which the suffix drafter looks too. It is indexed once, in the cache, and
        again when it has changed: some seconds for a few MB.
    draft_slim
        `auto`: weights of a draft model are rounded, and its head is restricted to common tokens and those of
        the text, where that makes it enough faster. `off`: it stays as filed. The answers are the same.
    offline
        No network is wanted.
    notice
        Takes one line of what is worth knowing; by default it becomes a Python warning.
    progress
        Called while loading with a model's name and the share done, 0..1.

    Raises
    ------
    UsageError
        A value that makes no sense.
    HubError
        A model that is unknown or not in the cache.
    ModelError
        A file that can't be used, or (VocabularyMismatch) a draft model with other tokens.
    CacheError
        The index of `draft_corpus` can't be kept.
    OutOfMemory
        Not enough memory is free.
    """
    said: list[str] = []
    target, draftings = load_models(
        model,
        [Wish.read(draft)],
        context,
        threads,
        draft_corpus=draft_corpus,
        draft_slim=draft_slim,
        offline=offline,
        notice=notice or said.append,
        progress=progress,
    )
    for text in said:
        warnings.warn(text, stacklevel=2)
    llm = LLM(target, draftings[0])
    llm.remember()
    return llm


class LLM:
    """A loaded model that answers; a context manager.

    Answers may be asked for from several threads, and several may be open at once: they advance in turn, one
    step at a time.

    Parameters
    ----------
    target
        The model whose answers are wanted.
    drafting
        What drafts for it; nothing by default.
    """

    def __init__(self, target: TextModel, drafting: Drafting | None = None) -> None:
        self.target = target
        self.drafting = drafting or Drafting(Wish())
        self.drafting.assume(target)
        self._turns = Turns()
        self._closed = False
        self._remembered: Remembered | None = None

    @property
    def context(self) -> int:
        """Most tokens of prompt and answer together."""
        return self.target.engine.context

    @property
    def drafts(self) -> list[Model | str]:
        """What drafts: models, and names of drafters that are none."""
        wish, model = self.drafting.wish, self.drafting.model
        suffix = [] if wish == Wish() else [SUFFIX]
        corpus = [] if self.drafting.corpus is None else [CORPUS]
        return [*suffix, *corpus, *([] if model is None else [model])]

    @property
    def has_template(self) -> bool:
        """Whether the model can chat."""
        return self.target.template is not None

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, as the prompt of `generate`: special tokens written out are special."""
        return self.target.tokenizer.encode(text, special=True)

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of ids; special tokens have none."""
        return self.target.tokenizer.decode(tokens)

    def generate(self, prompt: str | Sequence[int], **options: Unpack[OptionArgs]) -> Result:
        """Continue a prompt and return the whole answer.

        Parameters
        ----------
        prompt
            Text, or token ids.
        **options
            `max_tokens=256`, `temperature=0.0`, `top_k=0`, `top_p=1.0`, `min_p=0.0`, `seed=None`, `stop=()`,
            `draft_length="auto"`, `speculate=True`, and penalties, biases, bans, `n` answers,
            log-probabilities, `echo`; see `pilotfish.options.Options`.

        Raises
        ------
        UsageError
            An option that makes no sense, an empty prompt, or (PromptTooLong) one beyond the context.
        EngineError
            A pass failed.
        OutOfMemory
            No memory is left for a longer text; the model can be used on.
        """
        return self.stream(prompt, **options).result()

    def stream(self, prompt: str | Sequence[int], **options: Unpack[OptionArgs]) -> Answer:
        """Continue a prompt; iterate over the answer to get its events. Parameters as for `generate`."""
        checked = Options(**options)
        return self.start(self._ids(prompt), checked)

    def chat(self, messages: Sequence[Message], **options: Unpack[OptionArgs]) -> Result:
        """Answer the last of some messages and return the whole answer.

        Parameters
        ----------
        messages
            Each with `role` ("system", "user", "assistant") and `content`.
        **options
            As for `generate`.

        Raises
        ------
        TemplateError
            The model has no chat template, or it fails on these messages.
        """
        return self.chat_stream(messages, **options).result()

    def chat_stream(self, messages: Sequence[Message], **options: Unpack[OptionArgs]) -> Answer:
        """Answer the last of some messages; iterate over the answer to get its events."""
        checked = Options(**options)
        return self.start(self.chat_tokens(messages), checked)

    def chat_tokens(self, messages: Sequence[Message]) -> list[int]:
        """Return the prompt that the chat template makes of messages, as ids.

        Raises
        ------
        UsageError
            No messages.
        TemplateError
            The model has no chat template, or it fails on these messages.
        """
        if self.target.template is None:
            raise TemplateError(
                f"{self.target.name} has no chat template", "a base model can only `generate`"
            )
        if not messages:
            raise UsageError("there are no messages", 'give at least {"role": "user", "content": "..."}')
        text = self.target.template.render(messages, add_generation_prompt=True)
        return self.target.tokenizer.encode(text, special=True, bos=False)

    def start(self, tokens: Sequence[int], options: Options) -> Answer:
        """Return an answer to ids, nothing of which has been computed yet."""
        if self._closed:
            raise UsageError(f"{self.target.name} is closed", "load it again")
        choices = choices_of(self.target.tokenizer, tokens, options)
        drafter, control = self.drafting.choose(options.draft_length if options.speculate else 0)
        decoder = Decoder(self.target.engine, drafter, control, token_count=self.target.tokenizer.token_count)
        return Answer(decoder, choices, self._turns)

    def remember(self) -> None:
        """Start from what passes cost when these models were last used here, and keep what is learned."""
        if self.drafting.wish != Wish():
            self._remembered = Remembered.of(self.target, self.drafting.model)
            self._remembered.load(self.drafting.costs, self.drafting.beliefs)

    def close(self) -> None:
        """Free the models; answers that are still open can't go on. Closing twice does nothing."""
        with self._turns.turn():
            if not self._closed:
                self._closed = True
                if self._remembered is not None:
                    self._remembered.save(self.drafting.costs, self.drafting.beliefs)
                models = [self.target, *([] if self.drafting.model is None else [self.drafting.model])]
                for dispose in {id(model.engine): model.dispose for model in models}.values():
                    dispose()

    def _ids(self, prompt: str | Sequence[int]) -> list[int]:
        if isinstance(prompt, bytes) or not isinstance(prompt, Sequence):
            raise UsageError(f"the prompt is {str(prompt)[:60]!r}", "it is text, or a list of token ids")
        if isinstance(prompt, str):
            if not prompt:
                raise UsageError("the prompt is empty", "give at least one character to continue from")
            return self.encode(prompt)
        count = self.target.tokenizer.token_count
        for token in prompt:
            if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < count:
                raise UsageError(f"the prompt has the id {token!r}", f"ids go from 0 to {count - 1}")
        return list(prompt)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
