package kip33.oracle.segment;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import kafka.tools.DumpLogSegments;

/** Runs Kafka's own {@code DumpLogSegments} on one file and answers what it printed. */
public final class IndexDump {
    public Map<String, Object> answer(JsonNode request) {
        List<String> arguments = new ArrayList<>(List.of("--files", request.get("file").asText()));
        for (JsonNode option : request.path("options"))
            arguments.add(option.asText());
        Map<String, Object> answer = new LinkedHashMap<>();
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        ByteArrayOutputStream complaints = new ByteArrayOutputStream();
        PrintStream error = System.err;
        System.setErr(new PrintStream(complaints, true, StandardCharsets.UTF_8));
        try {
            scala.Console.withOut(printed, () -> {
                DumpLogSegments.main(arguments.toArray(new String[0]));
                return null;
            });
        } catch (Exception thrown) {
            answer.put("exception", thrown.getClass().getSimpleName());
            answer.put("message", String.valueOf(thrown.getMessage()));
        } finally {
            System.setErr(error);
        }
        answer.put("printed", printed.toString(StandardCharsets.UTF_8));
        answer.put("complaints", complaints.toString(StandardCharsets.UTF_8));
        return answer;
    }
}
