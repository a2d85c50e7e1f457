import type { NotARun } from '../../worker/api.ts'

/** A checkpoint's file in a few words, by its name, as `step-120-2.safetensors`. */
export function checkpointWords(name: string): string {
  const step = /step-(\d+)(?:-\d+)?\.safetensors$/.exec(name)?.[1]
  return step === undefined ? 'a checkpoint' : `step ${step}`
}

/** The words for a file that a person wants to continue from but that is no checkpoint of a run: what it is, and what to do. */
export function fileWords(name: string, holds: NotARun): string {
  if (holds === 'weights') {
    return `${name} holds only a model’s weights, from “Download weights”. Resuming a run also needs the optimizer state and the position in the data: choose a checkpoint, downloaded with ↓ in this list.`
  }
  return `${name} is not a checkpoint of this page. Choose a .safetensors file, downloaded with ↓ in this list.`
}

/** Why a checkpoint was not written, from the error. */
export function whyUnsaved(code: string, text: string): string {
  if (code !== 'file.unwritable') return text
  return 'this browser stores no files for this page, as in some private windows. Use a normal window or another browser.'
}
