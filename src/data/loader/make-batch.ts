import { isErrorCode } from '../../util/error-codes.ts'
import { DataError, type ErrorCode, messageOf } from '../../util/errors.ts'
import type { Dataset } from '../samples.ts'

/** The code of a thrown error where it is one of ours, else null. */
export const codeOf = (thrown: unknown): ErrorCode | null =>
  thrown instanceof Error && 'code' in thrown && isErrorCode(thrown.code) ? thrown.code : null

/**
 * Makes samples in order and collates them; `where` begins the text of errors.
 *
 * errors: what the data set or collate throws, as a DataError that names the sample and keeps the code (`data.malformed` for others').
 */
export async function makeBatch<S, B>(
  dataset: Dataset<S>,
  collate: (samples: S[]) => B,
  seed: number,
  epoch: number,
  indices: ArrayLike<number>,
  where = '',
): Promise<B> {
  const samples: S[] = []
  for (let i = 0; i < indices.length; i++) {
    const index = indices[i]
    try {
      const made = dataset.get(index, { seed, epoch, index })
      samples.push(made instanceof Promise ? await made : made)
    } catch (thrown) {
      throw named(`${where}sample ${index}`, thrown)
    }
  }
  try {
    return collate(samples)
  } catch (thrown) {
    throw named(`${where}the batch of samples ${listed(indices)}`, thrown)
  }
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
