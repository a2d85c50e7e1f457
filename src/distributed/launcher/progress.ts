import { checkNumber, checkOptions } from '../../util/options.ts'
import { tellLauncher } from './tell-launcher.ts'

/** How far a rank is; the launcher shows it in its one bar. */
export interface Progress {
  /** Steps done, from 1. */
  step: number
  totalSteps: number
  /** From 0. */
  epoch?: number
  epochs?: number
  loss?: number
  /** Of all ranks together, in this step. */
  samples?: number
}

/** The name of the page function that takes it, as JSON, and of the channel over which a rank's workers send it. */
export const progressName = '__tabringProgress'

const isWhole = (value: number) => Number.isSafeInteger(value) && value >= 0

/**
 * Tells the launcher how far this rank is; it draws one bar for all, from its lowest rank's reports. Nothing happens without a launcher.
 *
 * Works in the tab and in its workers. cost: a message between processes; once a step is fine.
 * errors: `config.invalid` for an option that there is not, or a number out of its range.
 */
export function reportProgress(progress: Progress): void {
  checkOptions('reportProgress', progress, {
    step: true,
    totalSteps: true,
    epoch: true,
    epochs: true,
    loss: true,
    samples: true,
  })
  const { step, totalSteps, epoch, epochs, samples } = progress
  for (const [name, value] of Object.entries({ step, totalSteps, epoch, epochs, samples })) {
    checkNumber('reportProgress', name, value, isWhole, 'a whole number of 0 or more')
  }
  tellLauncher(progressName, progress)
}
