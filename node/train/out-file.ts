import { constants } from 'node:fs'
import { access, open, readFile, realpath, rename, rm, stat, writeFile } from 'node:fs/promises'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { basename, dirname, join, resolve } from 'node:path'
import { readSafetensors } from '../../src/data/safetensors.ts'
import { writeTorch } from '../../src/data/torch/write-torch.ts'
import { messageOf, TabringError } from '../../src/util/errors.ts'

function unwritable(option: string, path: string, got: string, cause?: unknown): TabringError {
  return new TabringError(
    'file.unwritable',
    `${option}: cannot write ${path}: ${got}. Choose another path.`,
    { cause },
  )
}

/** Names of files that other programs would read as another format than that of weights. */
const otherFormats =
  /\.(bin|ckpt|csv|gguf|ggml|gz|h5|hdf5|json|keras|mat|mlmodel|npy|npz|onnx|pb|pkl|pickle|pte|tar|tflite|zip)$/i

/** Checks the weights, and returns them as torch.load reads them where the file's name asks for that. */
function weightsOf(bytes: Buffer, name: string): Uint8Array | undefined {
  const { tensors } = readSafetensors(bytes, name)
  return /\.pth?$/i.test(name) ? writeTorch(Object.fromEntries(tensors)) : undefined
}

/**
 * The place of a result file that appears whole or not at all.
 *
 * `open` proves before the run that the file can be written, by making the temporary file beside it; `receive` writes it; `commit` checks what
 * was written there and renames it; `discard` takes the temporary file away. An existing file stays as it is until `commit`.
 */
export class OutFile {
  private constructor(
    private readonly option: string,
    /** Where the file will be. */
    readonly path: string,
    /** Where to write it meanwhile: the same folder, so that renaming is atomic. */
    readonly temporaryPath: string,
  ) {}

  /**
   * errors: `file.unwritable`: no such folder, no right to write there, something there that is no regular file, or weights under a name of
   * another format.
   */
  static async open(path: string, option = '--out'): Promise<OutFile> {
    const ending = option === '--out' && otherFormats.exec(path)?.[0]
    if (ending)
      throw unwritable(
        option,
        path,
        `weights are written as .safetensors, or as .pt or .pth of PyTorch, not as ${ending}`,
      )
    const wanted = resolve(path)
    // Through a link to the file itself: renaming onto a link would replace the link.
    const target = await realpath(wanted).catch(() => wanted)
    const existing = await stat(target).catch(() => undefined)
    if (existing?.isDirectory()) throw unwritable(option, path, 'it is a folder')
    if (existing && !existing.isFile()) throw unwritable(option, path, 'it is not a regular file')
    const folder = await stat(dirname(target)).catch(() => undefined)
    if (!folder?.isDirectory())
      throw unwritable(option, path, `there is no folder ${dirname(target)}`)
    const temporaryPath = join(dirname(target), `.${basename(target)}.${process.pid}.tmp`)
    try {
      if (existing) await access(target, constants.W_OK)
      await (await open(temporaryPath, 'w')).close()
    } catch (thrown) {
      throw unwritable(
        option,
        path,
        (thrown as NodeJS.ErrnoException).code ?? messageOf(thrown),
        thrown,
      )
    }
    return new OutFile(option, target, temporaryPath)
  }

  /** Writes there what a tab sends, and answers it: 204, or 507 with the reason. */
  async receive(request: IncomingMessage, response: ServerResponse): Promise<void> {
    try {
      await writeFile(this.temporaryPath, request.iterator({ destroyOnReturn: false }))
      response.writeHead(204).end()
    } catch (thrown) {
      const { message } = unwritable(this.option, this.path, messageOf(thrown))
      response.writeHead(507, { 'Content-Type': 'text/plain' }).end(message)
      request.resume()
    }
  }

  /**
   * Puts the file in place, or instead the bytes that `check` returns. errors: `check`'s, as a rule `data.malformed` when it is no whole
   * safetensors file; `file.unwritable`.
   */
  async commit(check: (bytes: Buffer, name: string) => unknown = weightsOf): Promise<void> {
    const other = check(await readFile(this.temporaryPath), basename(this.path))
    try {
      if (other instanceof Uint8Array) await writeFile(this.temporaryPath, other)
      await rename(this.temporaryPath, this.path)
    } catch (thrown) {
      throw unwritable(this.option, this.path, messageOf(thrown), thrown)
    }
  }

  /** Leaves nothing behind; harmless after `commit` and when called twice. */
  async discard(): Promise<void> {
    await rm(this.temporaryPath, { force: true })
  }
}
