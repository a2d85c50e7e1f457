import type { Template } from '@huggingface/jinja'
import type { Tokenizer as FileTokenizer } from '@huggingface/tokenizers'
import { DataError, messageOf } from '../../util/errors.ts'
import { isIterable, isPlain, isText, quoted } from '../../util/kind-of.ts'
import { checkArgument, checkOptions, checkText } from '../../util/options.ts'
import { malformed } from '../malformed.ts'
import { type Tokenizer, unknownToken } from '../text.ts'

/** What one says in a conversation. A template may read further fields, such as `tool_calls`. */
export interface ChatMessage {
  /** `system`, `user`, `assistant` or `tool`; the template decides. */
  readonly role: string
  readonly content: string
  readonly [field: string]: unknown
}

export interface ChatOptions {
  /** True if the text ends where the assistant is to speak. Default false. */
  addGenerationPrompt?: boolean
  /** Descriptions of functions, where the template has a place for them. */
  tools?: readonly object[]
  /** Further variables of the template, such as Qwen's `enable_thinking`. */
  variables?: Readonly<Record<string, unknown>>
}

/** Contents of a model's files, parsed: `tokenizer.json`, `tokenizer_config.json`, and the text of `chat_template.jinja`. */
export interface TokenizerFiles {
  readonly tokenizer: unknown
  readonly config?: unknown
  readonly chatTemplate?: string
}

const configFile = 'tokenizer_config.json'

/** The tokens that have a part in what files say of each other. */
const roles = ['bos', 'eos', 'pad', 'unk'] as const

/** The tokenizer of a published model. `readTokenizer` makes it. */
export class PretrainedTokenizer implements Tokenizer {
  /** The highest token + 1. */
  readonly vocabularySize: number
  /** Token that begins a text; undefined where the files name none. */
  readonly bosToken: number | undefined
  /** Token that ends a text, or a turn of a conversation. */
  readonly eosToken: number | undefined
  readonly padToken: number | undefined
  /** Tokens that stand for no text. */
  readonly specialTokens: ReadonlySet<number>
  readonly #inner: FileTokenizer
  readonly #template: Template | undefined
  /** Texts of the special tokens, by the names that templates have for them. */
  readonly #texts: Readonly<Record<string, string>>
  readonly #adds: { readonly bos: boolean; readonly eos: boolean }

  /** @internal */
  constructor(
    inner: FileTokenizer,
    config: Readonly<Record<string, unknown>>,
    template: Template | undefined,
  ) {
    this.#inner = inner
    this.#template = template
    this.vocabularySize = inner.model!.vocab.length
    const special = [...inner.get_added_tokens_decoder()].filter(([, { special }]) => special)
    this.specialTokens = new Set(special.map(([token]) => token))
    const texts: Record<string, string> = {}
    for (const role of roles) {
      const text = textOfToken(config[`${role}_token`])
      if (text !== undefined) texts[`${role}_token`] = text
    }
    this.#texts = texts
    const token = (role: string) => this.tokenOf(texts[`${role}_token`] ?? '')
    this.bosToken = token('bos')
    this.eosToken = token('eos')
    this.padToken = token('pad')
    this.#adds = { bos: config['add_bos_token'] === true, eos: config['add_eos_token'] === true }
  }

  /** True if the files have a template for conversations. */
  get hasChatTemplate(): boolean {
    return this.#template !== undefined
  }

  /** The number of a token by its text as the file writes it; undefined for an unknown one. */
  tokenOf(text: string): number | undefined {
    return this.#inner.token_to_id(text)
  }

  /**
   * Returns the tokens of a text. `addSpecialTokens` (default true): with those that the files add to a text, such as one that begins it.
   * Special tokens that are written in the text become such. A character that the vocabulary lacks becomes its token for unknown ones, or
   * nothing.
   *
   * errors: `data.malformed` where the vocabulary lacks that token.
   */
  encode(text: string, options: { addSpecialTokens?: boolean } = {}): Int32Array<ArrayBuffer> {
    const known = { addSpecialTokens: 'flag' } as const
    const { addSpecialTokens = true } = checkOptions('encode', options, known)
    checkText('encode', 'text', text)
    const { ids, tokens } = this.#inner.encode(text, { add_special_tokens: addSpecialTokens })
    const lacking = ids.findIndex((id) => !Number.isInteger(id))
    if (lacking >= 0)
      throw malformed(
        'encode',
        'characters of the vocabulary',
        quoted(tokens[lacking]),
        'Remove it from the text, or use a tokenizer that has bytes.',
      )
    const { bosToken: bos, eosToken: eos } = this
    if (addSpecialTokens && this.#adds.bos && bos !== undefined && ids[0] !== bos) ids.unshift(bos)
    if (addSpecialTokens && this.#adds.eos && eos !== undefined && ids.at(-1) !== eos) ids.push(eos)
    return Int32Array.from(ids)
  }

  /**
   * Returns the text of tokens; bytes that are no character become U+FFFD. `skipSpecialTokens` (default false): without those.
   *
   * errors: `data.malformed` for an unknown token.
   */
  decode(tokens: Iterable<number>, options: { skipSpecialTokens?: boolean } = {}): string {
    const known = { skipSpecialTokens: 'flag' } as const
    const { skipSpecialTokens = false } = checkOptions('decode', options, known)
    checkArgument('decode', 'tokens', tokens, isIterable(tokens), 'a list of tokens')
    const list: number[] = []
    for (const token of tokens) {
      if (this.#inner.id_to_token(token) === undefined)
        throw unknownToken('decode', token, this.vocabularySize)
      if (!skipSpecialTokens || !this.specialTokens.has(token)) list.push(token)
    }
    if (list.length === 0) return ''
    // Python's decode leaves out spaces before punctuation where a file asks for that: another text than was encoded.
    return this.#inner.decode(list, { clean_up_tokenization_spaces: false })
  }

  /**
   * Returns the text of a conversation, as the model's template writes it: encode it with `addSpecialTokens: false`.
   *
   * errors: `data.missing` for a model without a template; `data.malformed` for what its template refuses.
   */
  applyChatTemplate(messages: readonly ChatMessage[], options: ChatOptions = {}): string {
    const {
      addGenerationPrompt = false,
      tools,
      variables,
    } = checkOptions('applyChatTemplate', options, {
      addGenerationPrompt: 'flag',
      tools: 'list',
      variables: 'object',
    })
    checkArgument('applyChatTemplate', 'messages', messages, Array.isArray(messages), 'a list')
    if (!this.#template)
      throw new DataError(
        'data.missing',
        `chat_template.jinja: the folder has none, and ${configFile} has no chat_template. Choose an instruct model, or train on text.`,
      )
    try {
      return this.#template.render({
        ...this.#texts,
        ...variables,
        ...(tools && { tools }),
        messages,
        add_generation_prompt: addGenerationPrompt,
      })
    } catch (cause) {
      const text = `the chat template refuses these messages: ${messageOf(cause)}. Correct them.`
      throw new DataError('data.malformed', `applyChatTemplate: ${text}`, { cause })
    }
  }
}

/** A token in tokenizer_config.json: its text, or an object with it. */
const textOfToken = (token: unknown): string | undefined => {
  const text = isPlain(token) ? token['content'] : token
  return isText(text) ? text : undefined
}

/** The template in tokenizer_config.json: one, or several with names. */
function templateIn(config: Readonly<Record<string, unknown>>): string | undefined {
  const { chat_template: template } = config
  if (!Array.isArray(template)) return isText(template) ? template : undefined
  const named = template.find((one) => isPlain(one) && one['name'] === 'default') ?? template[0]
  return isPlain(named) && isText(named['template']) ? named['template'] : undefined
}

/**
 * Returns the tokenizer of a published model from its files. `await` it once: this call loads the code (13 kB, with templates 22).
 *
 * errors: `data.malformed` for other contents, and for parts that are not known.
 */
export async function readTokenizer(files: TokenizerFiles): Promise<PretrainedTokenizer> {
  const known = { tokenizer: true, config: true, chatTemplate: 'text' } as const
  const own = checkOptions('readTokenizer', files, known, 'files')
  const { tokenizer, config = {}, chatTemplate } = own
  const isThere = tokenizer !== undefined
  checkArgument('readTokenizer', 'files', files, isThere, 'with the contents of tokenizer.json')
  if (!isPlain(tokenizer) || !isPlain(tokenizer['model']))
    throw malformed('tokenizer.json', 'an object with a model', quoted(tokenizer))
  if (!isPlain(config)) throw malformed(configFile, 'an object', quoted(config))
  const { Tokenizer: Inner } = await import('@huggingface/tokenizers')
  const parts = { decoder: null, post_processor: null, pre_tokenizer: null, normalizer: null }
  const whole = { ...parts, added_tokens: [], ...tokenizer }
  const inner = made('tokenizer.json', 'a tokenizer', () => new Inner(whole, config))
  const text = chatTemplate ?? templateIn(config)
  if (text === undefined) return new PretrainedTokenizer(inner, config, undefined)
  const { Template: Chat } = await import('@huggingface/jinja')
  const where = chatTemplate === undefined ? configFile : 'chat_template.jinja'
  const template = made(where, 'a chat template', () => new Chat(text))
  return new PretrainedTokenizer(inner, config, template)
}

/** errors: `data.malformed` for what a library throws. */
function made<T>(where: string, what: string, make: () => T): T {
  try {
    return make()
  } catch (cause) {
    throw new DataError(
      'data.malformed',
      `${where}: expected ${what} of known parts, got an error: ${messageOf(cause)}. Fetch the file again, or choose another model.`,
      { cause },
    )
  }
}
