import type { TrainConfigInput } from '../src/trainer/settings/config.ts'

/** The built-in models that runs in tabs are measured with, by the name of a flag. */
export const models: Readonly<Record<string, TrainConfigInput>> = {
  mlp: { demo: 'digits', model: 'mlp' },
  cnn: { demo: 'digits', model: 'cnn' },
  gpt: { demo: 'text' },
}
export const modelNames = Object.keys(models)
