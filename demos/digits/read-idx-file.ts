import { mnistImages, readImages, readLabels } from '../../src/data/dataset.ts'
import { foreignFile } from '../../src/data/foreign.ts'
import { gunzipIfCompressed } from '../../src/data/idx.ts'
import { DataError } from '../../src/util/errors.ts'
import type { IdxFile } from './idx-files.ts'

/** Plain, MNIST's largest has 47 MB. */
const maxFileBytes = 128 * 2 ** 20
const imagesMagic = '0x00 0x00 0x08 0x03'
const labelsMagic = '0x00 0x00 0x08 0x01'

/** Returns what a chosen file is, by its magic number and, for training or held out, by its name. errors: `data.malformed`, one line that names the file. */
export async function readIdxFile(file: File): Promise<IdxFile> {
  const { name } = file
  if (file.size > maxFileBytes)
    throw malformed(name, `it has ${file.size} bytes, more than ${maxFileBytes}`)
  const bytes = new Uint8Array(await file.arrayBuffer())
  const plain = await gunzipIfCompressed(bytes, name, maxFileBytes)
  const magic = [...plain.subarray(0, 4)].map((byte) => `0x${byte.toString(16).padStart(2, '0')}`)
  const isLabels = magic.join(' ') === labelsMagic
  if (!isLabels && magic.join(' ') !== imagesMagic) {
    const found = magic.length < 4 ? `has ${magic.length} bytes` : `begins with ${magic.join(' ')}`
    throw (
      foreignFile(name, 'an IDX file', plain) ??
      malformed(
        name,
        `it ${found}; an IDX file begins with ${imagesMagic} (images) or ${labelsMagic} (labels)`,
      )
    )
  }
  const { shape } = await (isLabels ? readLabels : readImages)({ name, bytes: plain }, mnistImages)
  return {
    name,
    kind: isLabels ? 'labels' : 'images',
    count: shape[0],
    split: /train/i.test(name) ? 'train' : /t10k|test/i.test(name) ? 't10k' : null,
    // Fewer bytes to hand over to the other ranks: MNIST's become a fifth.
    bytes: plain === bytes ? await gzipped(plain) : bytes,
  }
}

const gzipped = async (bytes: Uint8Array<ArrayBuffer>) =>
  new Uint8Array(
    await new Response(
      new Blob([bytes]).stream().pipeThrough(new CompressionStream('gzip')),
    ).arrayBuffer(),
  )

const malformed = (name: string, problem: string) =>
  new DataError(
    'data.malformed',
    `${name}: ${problem}. Choose MNIST’s four files, or others in their format, plain or gzip.`,
  )
