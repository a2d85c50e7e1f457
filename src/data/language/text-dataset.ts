import { DataError } from '../../util/errors.ts'
import { isOf } from '../../util/kind-of.ts'
import { checkArgument, checkNumber, checkRecord, isCount } from '../../util/options.ts'
import { requireIndex } from '../datasets.ts'
import type { DatasetDescription, HostTensor } from '../descriptions.ts'
import type { Dataset } from '../samples.ts'
import type { TextRows } from './text-rows.ts'

/** Label of a token that has no loss, as in transformers. */
const ignored = -100

export interface TextSample {
  readonly [field: string]: HostTensor
  readonly tokens: HostTensor
  readonly labels: HostTensor
  readonly positions: HostTensor
  readonly segments: HostTensor
}

/**
 * Rows of tokens for a language model, each of one text or of several. `tokenizeTexts` makes it.
 *
 * shape: all i32 [blockSize]. `labels` lie where their tokens are, as `CausalLm.loss` and transformers take them, -100 where there is no
 * loss: at padding, at the first token of each text, and where only answers have one. `positions` count from 0 in each text. `segments`
 * number the texts of a row from 0, -1 for padding: with packing, pass them to
 * `CausalLm.loss`, so that attention stays within equal ones.
 */
export class TextDataset implements Dataset<TextSample> {
  readonly contents: TextRows
  readonly length: number

  constructor(contents: TextRows) {
    checkRecord('TextDataset', 'contents', contents)
    const { tokens, learned, parts, rows, blockSize } = contents
    const isTokens = isOf(tokens, Int32Array) && isOf(learned, Uint8Array)
    const isRows = isOf(parts, Uint32Array) && isOf(rows, Uint32Array)
    checkArgument('TextDataset', 'contents', contents, isTokens && isRows, 'arrays of tokens')
    checkNumber('TextDataset', 'blockSize', blockSize, isCount, 'a whole number above 0', true)
    this.contents = contents
    this.length = Math.max(0, rows.length - 1)
  }

  get blockSize(): number {
    return this.contents.blockSize
  }

  get(index: number): TextSample {
    requireIndex('TextDataset', index, this.length)
    const { tokens, learned, parts, rows, blockSize, padToken } = this.contents
    const filled = (value: number) => new Int32Array(blockSize).fill(value)
    const row = { tokens: filled(padToken), labels: filled(ignored) }
    const [positions, segments] = [filled(0), filled(-1)]
    let at = 0
    for (let part = rows[index]; part < rows[index + 1]; part++) {
      const [begin, end] = [parts[2 * part], parts[2 * part + 1]]
      if (at + end - begin > blockSize || end > tokens.length || begin >= end)
        throw new DataError(
          'data.malformed',
          `TextDataset: expected parts of ${blockSize} tokens together in row ${index}, got ${begin} to ${end} of ${tokens.length}. Make the data set with tokenizeTexts.`,
        )
      row.tokens.set(tokens.subarray(begin, end), at)
      for (let i = 0; i < end - begin; i++) {
        if (i > 0 && learned[begin + i] === 1) row.labels[at + i] = tokens[begin + i]
        positions[at + i] = i
        segments[at + i] = part - rows[index]
      }
      at += end - begin
    }
    const tensor = (data: Int32Array<ArrayBuffer>): HostTensor => ({ shape: [blockSize], data })
    return {
      tokens: tensor(row.tokens),
      labels: tensor(row.labels),
      positions: tensor(positions),
      segments: tensor(segments),
    }
  }

  describe(): DatasetDescription {
    return { kind: 'texts', contents: this.contents }
  }
}

/**
 * Assigns parts to rows of `blockSize` tokens: the longest first, each to the row that it fills best. Rows keep the order of their first
 * parts, and parts their order within a row.
 *
 * source: best-fit decreasing, as TRL's strategy `bfd`.
 */
export function packParts(lengths: readonly number[], blockSize: number): number[][] {
  const order = lengths.map((_, i) => i).sort((a, b) => lengths[b] - lengths[a] || a - b)
  /** By the number of tokens that are left in them. */
  const open: number[][][] = Array.from({ length: blockSize + 1 }, () => [])
  const rows: number[][] = []
  for (const part of order) {
    let left = lengths[part]
    while (left < blockSize && open[left].length === 0) left++
    const row = open[left].pop() ?? []
    if (row.length === 0) {
      rows.push(row)
      left = blockSize
    }
    row.push(part)
    open[left - lengths[part]].push(row)
  }
  for (const row of rows) row.sort((a, b) => a - b)
  return rows.sort(([a], [b]) => a - b)
}
