import { operationOf } from '../../../src/peer/collective/announcement.ts'
import { decodeHeader, emptyHeader, frameTypeName } from '../../../src/peer/link/wire.ts'

/** What happened in a world, line by line, for a person who replays a seed. */
export class Trace {
  readonly lines: string[] = []

  note(atMs: number, text: string): void {
    this.lines.push(`${atMs.toFixed(1).padStart(9)} ms  ${text}`)
  }

  frame(atMs: number, from: number, to: number, message: Uint8Array): void {
    this.note(atMs, `${from} > ${to}  ${frameText(message)}`)
  }
}

function frameText(message: Uint8Array): string {
  const header = emptyHeader()
  try {
    decodeHeader(message, header)
  } catch (thrown) {
    return `${message.length} bytes, ${(thrown as Error).message}`
  }
  const { type, kind, sequence, bucket, group, step, offset, length, number, credit } = header
  const name = frameTypeName(type)
  const what =
    name === 'start' || name === 'data'
      ? ` ${operationOf(kind)} #${sequence}/${bucket} group ${group} step ${step} offset ${offset}`
      : ''
  return `${name}${what} +${length} (frame ${number}, credit ${credit})`
}
