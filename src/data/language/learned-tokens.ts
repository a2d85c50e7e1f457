import { calledAs } from '../../util/called-as.ts'
import { malformed } from '../malformed.ts'
import type { ChatMessage, PretrainedTokenizer } from './pretrained-tokenizer.ts'
import type { TextRow } from './text-table.ts'

/** Which tokens have a loss. Names and defaults are TRL's. */
export interface LossChoice {
  /** True if the prompt has no loss; for rows with one. Default true. */
  completionOnlyLoss?: boolean
  /** True if only what the assistant says has a loss; for rows of messages. Default false. */
  assistantOnlyLoss?: boolean
}

/** A text as tokens, each with 1 if it has a loss. */
export interface TokenizedText {
  readonly tokens: Int32Array<ArrayBuffer>
  readonly learned: Uint8Array<ArrayBuffer>
}

/** Returns a row's tokens, each with whether it has a loss. `where` names the row in errors. */
export function learnedTokens(
  row: TextRow,
  tokenizer: PretrainedTokenizer,
  isLong: boolean,
  { completionOnlyLoss = true, assistantOnlyLoss = false }: LossChoice,
  where: string,
): TokenizedText {
  const encode = (text: string) => calledAs(where, 'encode', () => tokenizer.encode(text))
  if ('text' in row) {
    const tokens = encode(row.text)
    return marked(isLong ? tokens : ended(tokens, tokenizer), [[0, Number.POSITIVE_INFINITY]])
  }
  if ('messages' in row) return chatTokens(row.messages, tokenizer, assistantOnlyLoss, where)
  const { prompt, completion } = row
  if (typeof prompt === 'string' && typeof completion === 'string') {
    const tokens = ended(encode(prompt + completion), tokenizer)
    const begin = completionOnlyLoss ? commonStart(encode(prompt), tokens) : 0
    return marked(tokens, [[begin, tokens.length]])
  }
  const asked = prompt as readonly ChatMessage[]
  const answered = completion as readonly ChatMessage[]
  const chat = new Chat([...asked, ...answered], tokenizer, where)
  const begin = completionOnlyLoss ? chat.startAfter(asked.length) : 0
  return marked(chat.tokens, [[begin, chat.tokens.length]])
}

/** Tokens of [begin, end) have a loss. */
function marked(
  tokens: Int32Array<ArrayBuffer>,
  spans: readonly (readonly [begin: number, end: number])[],
): TokenizedText {
  const learned = new Uint8Array(tokens.length)
  for (const [begin, end] of spans) learned.fill(1, begin, Math.min(end, tokens.length))
  return { tokens, learned }
}

/** A text with the token that ends one, where the files name it. */
function ended(
  tokens: Int32Array<ArrayBuffer>,
  { eosToken }: PretrainedTokenizer,
): Int32Array<ArrayBuffer> {
  if (eosToken === undefined || tokens.at(-1) === eosToken) return tokens
  const own = new Int32Array(tokens.length + 1)
  own.set(tokens)
  own[tokens.length] = eosToken
  return own
}

/** How many tokens are the same: one that joins the end of the prompt with what follows is the answer's. */
function commonStart(prompt: Int32Array, whole: Int32Array): number {
  const end = prompt.findIndex((token, i) => token !== whole[i])
  return end < 0 ? prompt.length : end
}

/** A conversation as its template writes it. */
class Chat {
  readonly tokens: Int32Array<ArrayBuffer>
  readonly #text: string

  constructor(
    readonly messages: readonly ChatMessage[],
    readonly tokenizer: PretrainedTokenizer,
    readonly where: string,
  ) {
    this.#text = this.#written(messages, false)
    this.tokens = this.#encode(this.#text)
  }

  #written(messages: readonly ChatMessage[], addGenerationPrompt: boolean): string {
    return calledAs(this.where, 'applyChatTemplate', () =>
      this.tokenizer.applyChatTemplate(messages, { addGenerationPrompt }),
    )
  }

  #encode(text: string): Int32Array<ArrayBuffer> {
    return calledAs(this.where, 'encode', () =>
      this.tokenizer.encode(text, { addSpecialTokens: false }),
    )
  }

  /** The first token of what is said after `count` messages. errors: `data.malformed` where the template writes these otherwise. */
  startAfter(count: number): number {
    const before = this.#written(this.messages.slice(0, count), true)
    if (this.#text.startsWith(before)) return commonStart(this.#encode(before), this.tokens)
    throw malformed(
      this.where,
      `a chat template that writes the first ${count} messages the same whatever follows`,
      'another text',
      'Train on all of it: leave assistantOnlyLoss and completionOnlyLoss false.',
    )
  }
}

function chatTokens(
  messages: readonly ChatMessage[],
  tokenizer: PretrainedTokenizer,
  assistantOnlyLoss: boolean,
  where: string,
): TokenizedText {
  const chat = new Chat(messages, tokenizer, where)
  const { tokens } = chat
  if (!assistantOnlyLoss) return marked(tokens, [[0, tokens.length]])
  const turns = [...messages.keys()].filter((i) => messages[i].role === 'assistant')
  const spans = turns.map((turn, i) => {
    const begin = chat.startAfter(turn)
    const next = turns[i + 1]
    const end = next === undefined ? tokens.length : chat.startAfter(next)
    // A turn ends with a special token; what the template writes after it is no one's.
    const last = tokens.subarray(begin, end).findIndex((one) => tokenizer.specialTokens.has(one))
    if (last < 0 && next !== undefined && turn + 1 < next)
      throw malformed(
        where,
        'a special token that ends what the assistant says',
        'none',
        'Train on all messages: leave assistantOnlyLoss false.',
      )
    return [begin, last < 0 ? end : begin + last + 1] as const
  })
  return marked(tokens, spans)
}
