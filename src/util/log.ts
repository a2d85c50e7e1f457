import { switchValue } from './switches.ts'

/** Logs `text` where `debug` is at least `level`; not for the inside of a step. */
export function log(level: 1 | 2 | 3 | 4 | 5, topic: string, text: () => string): void {
  if (switchValue('debug') >= level) console.info(`tabring ${topic}: ${text()}`)
}
