import { isErrorCode } from '../../util/error-codes.ts'
import { DataError, type ErrorCode, messageOf } from '../../util/errors.ts'
import { isOf } from '../../util/kind-of.ts'
import { type FieldDTypes, Stack } from '../collate.ts'
import type { Dataset, Sample } from '../samples.ts'

/** The code of a thrown error where it is one of ours, else null. */
export const codeOf = (thrown: unknown): ErrorCode | null =>
  thrown instanceof Error && 'code' in thrown && isErrorCode(thrown.code) ? thrown.code : null

/**
 * Makes samples in order and collates them: by `collate`, or as `defaultCollate`, each sample as it is made. `where` begins the text of errors.
 *
 * errors: what the data set or collate throws, as a DataError that names the sample and keeps the code (`data.malformed` for others').
 */
export async function makeBatch<S, B>(
  dataset: Dataset<S>,
  collate: ((samples: S[]) => B) | FieldDTypes,
  seed: number,
  epoch: number,
  indices: ArrayLike<number>,
  where = '',
): Promise<B> {
  const samples: S[] = []
  const stack = typeof collate === 'function' ? undefined : new Stack(indices.length, collate)
  const inBatch = <T>(body: () => T): T => {
    try {
      return body()
    } catch (thrown) {
      throw named(`${where}the batch of samples ${listed(indices)}`, thrown)
    }
  }
  for (let i = 0; i < indices.length; i++) {
    const index = indices[i]
    let sample: S
    try {
      const made = dataset.get(index, { seed, epoch, index })
      sample = isOf(made, Promise) ? await made : made
    } catch (thrown) {
      throw named(`${where}sample ${index}`, thrown)
    }
    if (stack) inBatch(() => stack.add(sample as Sample))
    else samples.push(sample)
  }
  return inBatch(() => (typeof collate === 'function' ? collate(samples) : (stack!.batch as B)))
}

const named = (what: string, thrown: unknown) =>
  new DataError(codeOf(thrown) ?? 'data.malformed', `${what}: ${messageOf(thrown)}`, {
    cause: thrown,
  })

/** `4, 5, 6`, shortened where there are many. */
export function listed(indices: ArrayLike<number>): string {
  const shown = Array.from(indices).slice(0, 8).join(', ')
  return indices.length > 8 ? `${shown}, ... (${indices.length} samples)` : shown
}
