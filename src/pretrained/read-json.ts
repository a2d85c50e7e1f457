import { foreignBytes, foreignFile } from '../data/foreign.ts'
import { malformed } from '../data/malformed.ts'
import { type ModelFolder, openIn } from '../data/model-folder.ts'
import { decodeUtf8 } from '../data/utf8.ts'

/** The text of a file, undefined where there is none. errors: `data.malformed` for bytes that are not UTF-8; the folder's. */
export async function readText(folder: ModelFolder, name: string): Promise<string | undefined> {
  const file = await openIn(folder, name)
  if (!file) return undefined
  const bytes = await file.read(0, file.sizeBytes)
  const foreign = foreignFile(name, 'a file of text', bytes.subarray(0, foreignBytes))
  if (foreign) throw foreign
  return decodeUtf8(bytes, name)
}

/** The contents of a file of JSON, undefined where there is none. errors: `data.malformed`; the folder's. */
export async function readJson(folder: ModelFolder, name: string): Promise<unknown> {
  const text = await readText(folder, name)
  if (text === undefined) return undefined
  try {
    return JSON.parse(text)
  } catch (cause) {
    throw Object.assign(malformed(name, 'JSON', 'something else'), { cause })
  }
}
