import type { NotARun } from '../../worker/api.ts'

/** A checkpoint's file in a few words, by its name, as `step-120-2.safetensors`. */
export function checkpointWords(name: string): string {
  const step = /step-(\d+)(?:-\d+)?\.safetensors$/.exec(name)?.[1]
  return step === undefined ? 'a checkpoint' : `step ${step}`
}

/** What a file is that a person wants to go on from and that is no checkpoint of a run, and what to do. */
export function fileWords(name: string, holds: NotARun): string {
  if (holds === 'weights') {
    return `${name} holds a model’s weights only, as “Download weights” writes them. Going on with a run also takes the optimizer’s state and the place in the data: choose a file from “Save checkpoint”, which ↓ in this list downloads.`
  }
  return `${name} is not a checkpoint of this page. Choose a .safetensors file that ↓ in this list has downloaded.`
}

/** Why a checkpoint was not written, from the error. */
export function whyUnsaved(code: string, text: string): string {
  if (code !== 'file.unwritable') return text
  return 'this browser keeps no files for this page, as in some private windows. Use an ordinary window, or another browser.'
}
