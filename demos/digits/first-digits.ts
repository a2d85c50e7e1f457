import type { LabelledImages } from '../../src/data/dataset.ts'
import { loadPart } from '../../src/util/load-part.ts'

/** The first drawn digits that a run learns from; what draws them is loaded for it. */
export async function firstDigits(count: number): Promise<LabelledImages> {
  const { drawDigits } = await loadPart(
    'the drawn digits',
    () => import('../../src/data/digits.ts'),
  )
  return drawDigits(0, 0, count)
}
