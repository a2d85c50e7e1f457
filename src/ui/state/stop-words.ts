/** A stop that people asked for travels as the reason of an abort. */

const stopMark = 'stopped by '

/** The reason that all ranks get when `name` stops a run. */
export function stopReason(name: string): string {
  return `${stopMark}${name}.`
}

/** Returns whether a run ended with such a reason. */
export function isStop(text: string): boolean {
  return text.includes(stopMark)
}

/** Who stopped the run, from the text that it ended with. */
export function stoppedBy(text: string): string {
  return text.slice(text.indexOf(stopMark) + stopMark.length).replace(/\.$/, '')
}
