import { isRecord, isText } from './kind-of.ts'

/**
 * All error codes, each with its cause and remedy. Errors are `TabringError`s with one of these stable codes; wrong argument types are an
 * `ArgumentTypeError`, which is also a TypeError.
 *
 * A message reads `<where>: <what is wrong>. <what to do>`. docs/reference/errors.md is generated from this list (`npm run docs`).
 */
export const errorCodes = {
  // shapes and graphs
  'shape.mismatch': {
    cause: 'Two tensors have different sizes in a dimension that must agree.',
    remedy:
      'Compare the two shapes in the message; reshape, transpose or change the layer that it names.',
  },
  'shape.unsupported': {
    cause: 'An op does not support this shape, dtype or option.',
    remedy: 'Convert the tensor, or choose an option that the message allows.',
  },
  'graph.misuse': {
    cause: 'A tensor, module or optimizer was used where it is not valid.',
    remedy:
      'Move the call to where the message says, usually into the function passed to `compile`.',
  },
  // the device
  'gpu.unavailable': {
    cause:
      'The browser offers no WebGPU adapter, or the page is not a secure context. For `cpu`: WebAssembly has no vector instructions (SIMD), or the content security policy of the page forbids it.',
    remedy:
      "Open the page over https or localhost in a browser with WebGPU, or compile for the device `cpu`. For `cpu`: use a newer browser, or allow 'wasm-unsafe-eval' in the policy.",
  },
  'device.mismatch': {
    cause: 'A tensor is on a different device than the program that reads it.',
    remedy:
      'Move the tensor or the program with `.to()` or the `device` option, so that both are on the same device.',
  },
  'gpu.limit': {
    cause:
      'A buffer, kernel or program needs more memory or larger limits than the adapter offers.',
    remedy: 'Use a smaller model or batch, `checkpoint`, or another adapter.',
  },
  'gpu.lost': {
    cause: 'The browser lost the GPU device, or it was destroyed before its work was done.',
    remedy:
      'Reopen the device and resume from the last snapshot or checkpoint. The built-in training does this automatically on all ranks.',
  },
  'gpu.compile': {
    cause: 'A shader or pipeline did not compile.',
    remedy: 'Report it with the shader text. `useNaiveKernels: true` may avoid it.',
  },
  'gpu.validation': {
    cause: 'The device rejected a command.',
    remedy: 'Later results are not valid: stop the run and report the error.',
  },
  // peers and signaling
  'peer.lost': {
    cause: 'A rank left, crashed or stopped answering.',
    remedy:
      'The other members stay in the room. Start the run again, from a checkpoint if you have one.',
  },
  'peer.timeout': {
    cause:
      'A rank did not send what a collective waited for, or set the key that a store waited for, before the deadline.',
    remedy:
      'Keep that tab in the foreground, or raise the timeout; slow networks need longer ones.',
  },
  'peer.protocol': {
    cause: 'A frame or message violated the protocol.',
    remedy: 'Load the same version of the page on every rank.',
  },
  'peer.aborted': {
    cause: 'Another rank aborted the epoch.',
    remedy: 'Read the error of the rank that aborted.',
  },
  'peer.removed': {
    cause: 'The host removed a rank from the room, which ended the run.',
    remedy: 'Start the run again without it, from a checkpoint if you have one.',
  },
  'peer.late': {
    cause: 'Ranks were not all connected in time.',
    remedy: 'Keep the tabs that the message names in the foreground, and start again.',
  },
  'peer.unreachable': {
    cause: 'No connection to a rank could be established.',
    remedy: 'Check the firewalls between the two machines, or put both on the same network.',
  },
  'peer.mismatch': {
    cause: 'Ranks disagree about the current collective.',
    remedy: 'Run the same program with the same settings on every rank.',
  },
  'signal.refused': {
    cause: 'The signaling server refused a request.',
    remedy:
      "Read the reason in the message: a wrong secret, a full room, a run that has already started, or a limit of the room's store.",
  },
  'signal.lost': {
    cause: 'The connection to the signaling server closed.',
    remedy: 'Check that the server is running, and join again.',
  },
  'train.diverged': {
    cause: 'Replicas have different parameters.',
    remedy: 'Restart from a checkpoint, and report the error with the adapters of all ranks.',
  },
  'train.nan': {
    cause: 'The loss or the gradient norm is not finite.',
    remedy:
      'Lower the learning rate or clip gradients. `compile(..., { detectAnomaly: true })` names the first op that produced NaN or Infinity, before any parameter changes.',
  },
  'worker.dead': {
    cause: 'The compute worker stopped.',
    remedy: 'Reload the tab. The message contains the last error of the worker.',
  },
  'part.missing': {
    cause: 'A part of the page that loads on demand could not be loaded.',
    remedy:
      'Check that the server is running, and reload the page: the server may have a newer version.',
  },
  'rank.failed': {
    cause: 'A worker started by `spawn` threw an error or exited without a result.',
    remedy: 'Read the message: it names the first rank that failed and includes its stack.',
  },
  // data, files and settings
  'data.malformed': {
    cause: 'A data file does not follow its format.',
    remedy: 'Check that the file is complete and has the format that the message names.',
  },
  'data.missing': {
    cause: 'A data file does not exist.',
    remedy: 'Check the path or address, and that the server serves that folder.',
  },
  'data.checksum': {
    cause: 'The checksum of a file is not the expected one.',
    remedy: 'Download the file again. If it still differs, the source has changed.',
  },
  'data.interrupted': {
    cause: 'A download ended before the file was complete.',
    remedy: 'Call `download` again: it resumes where it stopped.',
  },
  'config.invalid': {
    cause: 'A setting, option or index is out of range or misspelled.',
    remedy: 'Use a name and value that the message allows.',
  },
  'file.unwritable': {
    cause: 'A file could not be written.',
    remedy: 'Check the folder, its permissions and the free space.',
  },
  'browser.missing': {
    cause: 'No browser was found.',
    remedy: 'Install Chrome, Chromium or Firefox, or set `TABRING_BROWSER` to the path of one.',
  },
} as const

/** Returns whether it is one of ours. */
export const isErrorCode = (value: unknown): value is keyof typeof errorCodes =>
  typeof value === 'string' && Object.hasOwn(errorCodes, value)

/** An error as a rank sends it to the others. */
export interface ErrorRecord {
  readonly code: keyof typeof errorCodes
  readonly message: string
}

/** Returns whether a rank may say that of an error. */
export const isErrorRecord = (value: unknown): value is ErrorRecord =>
  isRecord(value) && isErrorCode(value.code) && isText(value.message)
