import type { ErrorCode } from '../../util/errors.ts'
import { capitalized } from '../parts/format.ts'

/**
 * The text of an error as the page shows it: what the protocol calls an epoch or a membership is a run here, where epochs are passes over the
 * data.
 */
export const inPageWords = (text: string): string =>
  text
    .replace(/\b(e)poch (?=\d)/gi, (_, first: string) => (first === 'E' ? 'Run ' : 'run '))
    .replace(/\bmembership (?=\d)/g, 'run ')
    .replaceAll('frames of another membership', 'frames of another run')

/** What a run ended with comes in the words of links and ranks, which begin in the middle of a sentence; an address stays as it is. */
export const asSentence = (text: string): string =>
  /^\S*:\/\//.test(text) ? text : capitalized(text)

interface FailureText {
  readonly title: string
  /** What it means that the run ended at this step, and what to do; absent where the error is plain enough. */
  readonly text?: (step: number) => string
}

/** Texts of what ended a run, by the code of the error. */
export const failureTexts: Partial<Record<ErrorCode, FailureText>> = {
  'peer.unreachable': { title: 'A rank cannot be reached' },
  'peer.lost': { title: 'A rank was lost' },
  'peer.timeout': { title: 'A rank stopped answering' },
  'gpu.lost': { title: 'The GPU device was lost' },
  'train.nan': {
    title: 'The loss is not a number',
    text: (step) =>
      `Training became unstable ${step > 0 ? `after step ${step}` : 'in its first step'}: values grew until they were no longer finite. Usually the learning rate is too high. Divide it by 10 and start again; if that does not help, look for values in the data that are not numbers.`,
  },
  'train.diverged': { title: 'The replicas differ' },
  'data.missing': { title: 'The data is missing' },
  'data.malformed': { title: 'The data cannot be read' },
  'data.checksum': { title: 'The data has the wrong checksum' },
  'data.interrupted': { title: 'The download was interrupted' },
  'worker.dead': { title: 'The compute worker ended' },
}

/** Why a resumed run no longer has the saved run's bits, in one sentence; `differences` are those of the two records. */
export function resumedDifference(differences: readonly string[]): string {
  const ranks = /^ranks (\d+), now (\d+)$/.exec(
    differences.find((one) => one.startsWith('ranks ')) ?? '',
  )
  const why = ranks
    ? `The checkpoint was saved with ${ranks[1]} rank${ranks[1] === '1' ? '' : 's'} and resumes with ${ranks[2]}`
    : 'Something has changed since the checkpoint was saved'
  return `${why}, so the results may differ slightly from those of an uninterrupted run.`
}
