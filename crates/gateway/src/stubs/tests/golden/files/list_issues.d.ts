/**
 * List issues in a GitHub repository. For pagination, use the 'endCursor' from the previous response's 'pageInfo' in the 'after' parameter.
 *
 * By the server's own words: only reads.
 *
 * @example
 * await files.list_issues({ owner: "...", repo: "..." })
 */
export declare function list_issues(args: {
  /** Repository owner */
  owner: string;
  /** Repository name */
  repo: string;
  /** Cursor for pagination. */
  after?: string;
  /** Order direction. */
  direction?: "ASC" | "DESC";
  /** Filter by labels */
  labels?: Array<string>;
  /** Results per page (at least 1; at most 100) */
  perPage?: number;
  /** Filter by date (format date-time) */
  since?: string;
  /** Filter by state */
  state?: "OPEN" | "CLOSED";
}): Promise<unknown>;
