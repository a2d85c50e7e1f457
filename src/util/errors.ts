/**
 * Tabring's errors: four classes, one stable `code` each from the list below.
 *
 * A message reads `<where>: <expected>, got <actual>. <what to do>`.
 */
export const errorCodes = {
  // shapes and graphs
  'shape.mismatch': 'Two tensors disagree about a dimension.',
  'shape.unsupported': 'An op was asked for a shape, dtype or option it does not have.',
  'graph.misuse': 'A tensor, module or optimizer was used outside the place where it is valid.',
  // the device
  'gpu.unavailable': 'The browser offers no WebGPU adapter, or the page is not a secure context.',
  'device.mismatch': 'A tensor is on another device than the program that reads it.',
  'gpu.limit': 'A buffer or kernel needs more than the adapter allows.',
  'gpu.lost': 'The device was lost.',
  'gpu.compile': 'A shader or pipeline did not compile.',
  'gpu.validation': 'The device rejected a command.',
  // peers and signaling
  'peer.lost': 'A rank left, crashed or stopped answering.',
  'peer.timeout': 'A rank did not send what a collective waited for in time.',
  'peer.protocol': 'A frame or message broke the protocol.',
  'peer.aborted': 'Another rank aborted the epoch.',
  'peer.unreachable': 'No connection to a rank could be made.',
  'peer.mismatch': 'Ranks disagree about the collective they are in.',
  'signal.refused': 'The signaling server refused a request.',
  'signal.lost': 'The connection to the signaling server ended.',
  'train.diverged': 'Replicas hold different parameters.',
  'train.nan': 'The loss is not a finite number.',
  'worker.dead': 'The compute worker ended.',
  // data, files and settings
  'data.malformed': 'A data file does not follow its format.',
  'data.missing': 'A data file is not there.',
  'data.checksum': 'A file is not the one that was asked for.',
  'data.interrupted': 'A download ended before the whole file had come.',
  'config.invalid': 'A setting is outside what it may be.',
  'file.unwritable': 'A file could not be written.',
  'browser.missing': 'No browser was found.',
} as const

export type ErrorCode = keyof typeof errorCodes

/** The common base: `code` is stable, `message` is for people. */
export class TabringError extends Error {
  readonly code: ErrorCode
  constructor(code: ErrorCode, message: string, options?: ErrorOptions) {
    super(message, options)
    this.name = new.target.name
    this.code = code
  }
}

export class ShapeError extends TabringError {}
export class GpuError extends TabringError {}
export class PeerError extends TabringError {}
export class DataError extends TabringError {}

/** Throws when an internal assumption does not hold; user mistakes use the classes above. */
export function invariant(condition: unknown, text: () => string): asserts condition {
  if (!condition) throw new Error(`internal: ${text()}. This is a defect in Tabring.`)
}

/** The error's text, whatever was thrown. */
export function messageOf(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message : String(thrown)
}
