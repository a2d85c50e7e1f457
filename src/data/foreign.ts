import { DataError } from '../util/errors.ts'

/** What people bring in the place of a file. */
interface Foreign {
  readonly is: string
  /** How it begins; a text also after spaces and in capitals. */
  readonly begins: readonly string[]
  readonly isText?: boolean
  /** Where these bytes are. Default 0. */
  readonly at?: number
  readonly remedy?: string
}

const lostFile = 'A server answers so for a missing file or a login: check the address.'

/** By the first bytes as Latin-1. Images that browsers decode are not here: they are damaged where a reader refuses them. */
const known: readonly Foreign[] = [
  {
    is: 'an HTML page',
    begins: ['<!doctype html', '<html', '<head', '<body'],
    isText: true,
    remedy: lostFile,
  },
  { is: 'an XML document', begins: ['<?xml'], isText: true, remedy: lostFile },
  {
    is: 'a Git LFS pointer',
    begins: ['version https://git-lfs.github.com/'],
    remedy: 'Fetch the file that it stands for: git lfs pull.',
  },
  { is: 'a gzip file', begins: ['\x1f\x8b'], remedy: 'Unpack it: gunzip.' },
  {
    is: 'a bzip2 file',
    begins: [...'123456789'].map((level) => `BZh${level}1AY&SY`),
    remedy: 'Unpack it: bunzip2.',
  },
  { is: 'an XZ file', begins: ['\xfd7zXZ'], remedy: 'Unpack it: unxz.' },
  { is: 'a Zstandard file', begins: ['\x28\xb5\x2f\xfd'], remedy: 'Unpack it: unzstd.' },
  {
    is: 'a ZIP archive (.zip, .npz or .pt)',
    begins: ['PK\x03\x04', 'PK\x05\x06'],
    remedy: 'Read a .pt with readTorch or loadModel, and an .npz with readNpz.',
  },
  { is: 'a tar archive', begins: ['ustar'], at: 257, remedy: 'Unpack it: tar -xf.' },
  { is: 'an array of NumPy (.npy)', begins: ['\x93NUMPY'], remedy: 'Read it with readNpy.' },
  {
    is: 'a Python pickle',
    begins: ['\x80\x02', '\x80\x03', '\x80\x04', '\x80\x05'],
    remedy: 'Read it with readTorch or loadModel, if torch.save wrote it.',
  },
  {
    is: 'a pickle of protocol 0 or 1, as Python 2 writes them',
    begins: [
      '(dp0\n',
      '(dp1\n',
      '(lp0\n',
      '(lp1\n',
      '}q\0',
      '}q\x01',
      ']q\0',
      ']q\x01',
      'ccopy_reg\n',
    ],
    remedy: 'Load it with Python, and save it in that form.',
  },
  { is: 'an HDF5 file', begins: ['\x89HDF'] },
  { is: 'a Parquet file', begins: ['PAR1\x15'] },
  { is: 'a TIFF image', begins: ['II*\0', 'MM\0*'], remedy: 'Convert it to PNG.' },
  { is: 'a PDF document', begins: ['%PDF-'] },
]
/** How many first bytes say what a file is. */
export const foreignBytes = 512

/**
 * The error for a file that is of another kind than `expected`, if its first bytes say which: an HTML page, a Git LFS pointer, a gzip
 * file, nothing at all. Undefined for unknown bytes. For every reader, where a file does not begin as it should.
 */
export function foreignFile(
  name: string,
  expected: string,
  bytes: Uint8Array,
): DataError | undefined {
  const head = String.fromCharCode(...bytes.subarray(0, foreignBytes))
  const text = head
    .replace(/^\xef\xbb\xbf/, '')
    .trimStart()
    .toLowerCase()
  const found: Pick<Foreign, 'is' | 'remedy'> | undefined =
    bytes.length === 0
      ? { is: 'an empty file', remedy: 'Fetch it again.' }
      : known.find(({ begins, isText = false, at = 0 }) =>
          begins.some((begin) => (isText ? text.startsWith(begin) : head.startsWith(begin, at))),
        )
  if (!found) return undefined
  const remedy = found.remedy ?? 'Pass another file, or read it with the function for its format.'
  return new DataError(
    'data.malformed',
    `${name}: expected ${expected}, got ${found.is}. ${remedy}`,
  )
}
