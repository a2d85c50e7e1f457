import { ModuleBuffer } from '../../graph/trace/module-buffer.ts'
import type { StoredData } from '../../graph/trace/stored-tensor.ts'
import { DataError, TabringError } from '../../util/errors.ts'

const words = 8

const wordsOf = (hex: string): Int32Array<ArrayBuffer> =>
  Int32Array.from({ length: words }, (_, i) => Number.parseInt(hex.slice(8 * i, 8 * i + 8), 16) | 0)

const hexOf = (data: ArrayLike<number>): string =>
  Array.from(data, (word) => (word >>> 0).toString(16).padStart(8, '0')).join('')

/**
 * SHA-256 of an adapter's base, in place of the base in state dicts: [8] of i32. Loading a state only compares it.
 */
export class BaseDigest extends ModuleBuffer {
  readonly #digest: () => Promise<string>
  #known: string | undefined

  /** `digest`: gives it as hexadecimal digits; see `digestOfAll`. */
  constructor(digest: () => Promise<string>) {
    super([words], new Int32Array(words))
    this.#digest = digest
  }

  /** As it is now, in hexadecimal. */
  async compute(): Promise<string> {
    this.#known = await this.#digest()
    return this.#known
  }

  override async stateOf(): Promise<StoredData> {
    return wordsOf(await this.compute())
  }

  override async prepareLoad(): Promise<void> {
    await this.compute()
  }

  override mustTake(data: StoredData): void {
    const saved = hexOf(data)
    if (this.#known === undefined)
      throw new TabringError(
        'graph.misuse',
        'loadStateDict: the base of the adapter has not been hashed yet. Await model.baseSha256() before, or load by loadCheckpoint.',
      )
    if (saved === this.#known) return
    throw new DataError(
      'data.malformed',
      `loadStateDict: the adapter was trained on a base with SHA-256 ${saved}, got a base with ${this.#known}. Load that base first.`,
    )
  }

  override assignWhole(): void {
    // It is that of the base.
  }
}
