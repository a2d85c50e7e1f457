import { ArgumentTypeError, TabringError } from './errors.ts'

/**
 * What `body` returns. errors: its own, and those of a promise that it returns; those that begin with one of the names in `inner`, which a
 * person has not called, begin with `where`.
 */
export function calledAs<T>(where: string, inner: string | readonly string[], body: () => T): T {
  const rename = (error: unknown): never => {
    if (!(error instanceof TabringError || error instanceof ArgumentTypeError)) throw error
    const own = error.message
    const name = [inner].flat().find((one) => own.startsWith(`${one}:`))
    if (name === undefined) throw error
    error.message = `${where}${own.slice(name.length)}`
    error.stack = error.stack?.replace(own, error.message)
    throw error
  }
  try {
    const result = body()
    return result instanceof Promise ? (result.catch(rename) as T) : result
  } catch (error) {
    return rename(error)
  }
}
