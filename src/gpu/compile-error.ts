import { clippedMessage, clippedName } from '../util/clipped.ts'
import { GpuError } from '../util/errors.ts'

interface Message {
  readonly lineNum: number
  readonly linePos: number
  readonly message: string
}

export interface FailedShader {
  readonly label: string
  readonly wgsl: string
  readonly module: { getCompilationInfo(): Promise<{ readonly messages: Iterable<Message> }> }
  readonly cause: unknown
}

/** The error for a shader that does not compile: with the compiler's messages, and the lines about the first of them, as a shader may have megabytes. */
export async function compileError({
  label,
  wgsl,
  module,
  cause,
}: FailedShader): Promise<GpuError> {
  const messages = [...(await module.getCompilationInfo()).messages]
  const found = messages.map((one) => `${one.lineNum}:${one.linePos} ${one.message}`).join('\n')
  const line = messages[0]?.lineNum || Number(/line (\d+)/.exec(String(cause))?.[1] ?? 1)
  const around = wgsl
    .split('\n')
    .map((text, i) => `${i + 1} | ${clippedName(text)}`)
    .slice(Math.max(0, line - 4), line + 3)
  return new GpuError(
    'gpu.compile',
    `shader "${clippedName(label)}": does not compile. Report this error with the text below; the switch debug=4 logs the whole shader.\n${clippedMessage(found || String(cause))}\n${around.join('\n')}`,
    { cause },
  )
}
