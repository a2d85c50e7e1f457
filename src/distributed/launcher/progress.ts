import { callLauncher } from '../../util/call-launcher.ts'
import { checkNumber, checkOptions, type OptionNames } from '../../util/options.ts'

/** Progress of a rank, as shown by the launcher's progress bar. */
export interface Progress {
  /** Steps done, from 1. */
  step: number
  /** Number of steps in all. */
  totalSteps: number
  /** Current epoch, from 0. */
  epoch?: number
  /** Number of epochs. */
  epochs?: number
  /** Loss of this step. */
  loss?: number
  /** Number of samples in this step, over all ranks. */
  samples?: number
}

/** The name of the page function that takes it, as JSON, and of the channel over which a rank's workers send it. */
export const progressName = '__tabringProgress'

const isWhole = (value: number) => Number.isSafeInteger(value) && value >= 0

const known: OptionNames<Progress> = {
  step: true,
  totalSteps: true,
  epoch: true,
  epochs: true,
  loss: 'number',
  samples: true,
}

/**
 * Reports this rank's progress to the launcher, which shows one bar with the reports of its lowest rank. Does nothing without a launcher.
 *
 * Works in the tab and in its workers. cost: a message between processes; once per step is fine.
 * errors: `config.invalid` for an unknown option, or a number out of range.
 */
export function reportProgress(progress: Progress): void {
  checkOptions('reportProgress', progress, known, 'progress')
  const { step, totalSteps, epoch, epochs, samples } = progress
  for (const [name, value] of Object.entries({ step, totalSteps, epoch, epochs, samples })) {
    checkNumber('reportProgress', name, value, isWhole, 'a whole number of 0 or more')
  }
  callLauncher(progressName, progress)
}
